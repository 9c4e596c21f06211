# shellcheck shell=bash disable=SC2154
# Part of test_install.sh: completion, asked of real shells by keys on a terminal. Needs check(), without(), $folder,
# $moved, $share.

# A line that is typed to an interactive shell, its Tab included, becomes arguments that are printed.
# typed SHELL SETUP LINE
typed() {
  local shell=$1
  printf '%s\n' "$2" 'megatron_train() { printf "<""<%s>>\n" "$*"; }' 'megatron_checkpoint() { megatron_train "$@"; }' \
    'megatron_preprocess() { megatron_train "$@"; }' 'megatron_generate() { megatron_train "$@"; }' \
    'megatron_launch() { megatron_train "$@"; }' "$3" exit |
    (cd "$folder/typing" && env -i PATH="$moved/bin:/usr/bin:/bin" HOME="$folder" TERM=dumb timeout 60 \
      script --quiet --return --command "$shell" /dev/null) | tr -d '\r' | grep -o '<<.*>>$' | tail -n 1
}

# completes SHELL SETUP LINE ARGUMENTS
completes() {
  local shell=$1 setup=$2 line=$3 expected=$4 found
  found=$(typed "$shell" "$setup" "$line" || true)
  check "${shell%% *}: $line" test "$found" = "<<$expected>>" ||
    { echo "  expected <<$expected>>, found $found" >&2; exit 1; }
}

typing_folder() {
  mkdir -p "$folder/typing/runs/books"
  touch "$folder/typing/books.toml" "$folder/typing/books.txt"
}

# without_terminal WHAT
without_terminal() {
  without script "$1" || { ! script --quiet --return --command true /dev/null > /dev/null 2>&1 < /dev/null &&
    echo "left out: $1 (no pseudo-terminal here; is /dev/pts mounted?)"; }
}

completion_of_bash() {
  if without_terminal "completion of bash"; then return; fi
  typing_folder
  local program all='bind "set bell-style none"; bind "\"\t\": insert-completions"; set +o history' one
  for program in "${programs[@]}" megatron_launch; do
    all+="; source '$share/bash-completion/completions/$program'"
    check "completion of $program" bash -n "$share/bash-completion/completions/$program"
  done
  one=${all/'bind "\"\t\": insert-completions"; '/}
  local -r bash='bash --norc --noprofile -i'
  completes "$bash" "$all" $'megatron_train --prin\t' "--print-config --print-samples"
  completes "$bash" "$all" $'megatron_train boo\t' "books.toml"
  completes "$bash" "$all" $'megatron_train books.toml --set parallel.sch\t' "books.toml --set parallel.schedule="
  completes "$bash" "$all" $'megatron_train --set parallel.schedule=\t' \
    "--set parallel.schedule=1f1b gpipe interleaved zero_bubble"
  completes "$bash" "$one" $'megatron_train --set=parallel.schedule=inter\t' "--set=parallel.schedule=interleaved"
  completes "$bash" "$one" $'megatron_train --set model.ti\t' "--set model.tie_embeddings="
  completes "$bash" "$one" $'megatron_train --set model.tie_embeddings=f\t' "--set model.tie_embeddings=false"
  completes "$bash" "$one" $'megatron_train --set run.directory=ru\tbo\t' "--set run.directory=runs/books/"
  completes "$bash" "$one" $'megatron_train --set chec\tloa\t' "--set checkpoint.load="
  completes "$bash" "$one" $'megatron_generate runs/books --precision b\t' "runs/books --precision bf16"
  completes "$bash" "$all" $'megatron_checkpoint re\t' "reshape"
  completes "$bash" "$one" $'megatron_checkpoint reshape a b --pi\t4' "reshape a b --pipeline 4"
  completes "$bash" "$one" $'megatron_preprocess train-tokenizer --type w\t' "train-tokenizer --type wordpiece"
  completes "$bash" "$one" $'megatron_launch 8 megatron_train books.toml --set parallel.schedule=z\t' \
    "8 megatron_train books.toml --set parallel.schedule=zero_bubble"
}

completion_of_zsh() {
  if without zsh "completion of zsh" || without_terminal "completion of zsh"; then return; fi
  typing_folder
  local setup="unsetopt zle_bracketed_paste beep; fpath=('$share/zsh/site-functions' \$fpath); autoload -Uz compinit"
  setup+="; compinit -u -D"
  local -r zsh='zsh -f -i'
  completes "$zsh" "$setup" $'megatron_train --dr\t' "--dry-run"
  completes "$zsh" "$setup" $'megatron_train boo\t' "books.toml"
  completes "$zsh" "$setup" $'megatron_train books.toml --set parallel.sch\t' "books.toml --set parallel.schedule="
  completes "$zsh" "$setup" $'megatron_train --set parallel.schedule=inter\t' "--set parallel.schedule=interleaved"
  completes "$zsh" "$setup" $'megatron_generate runs/books --precision b\t' "runs/books --precision bf16"
  completes "$zsh" "$setup" $'megatron_checkpoint resh\t' "reshape"
  completes "$zsh" "$setup" $'megatron_launch 8 megatron_train --set parallel.schedule=z\t' \
    "8 megatron_train --set parallel.schedule=zero_bubble"
}
