# shellcheck shell=bash disable=SC2154
# Part of test_install.sh: completion, asked of real shells by keys on a terminal. Needs check(), without(), $folder,
# $moved, $share.

# A line that is typed to an interactive shell, its Tab included, becomes arguments that are printed.
# typed SHELL SETUP LINE
typed() {
  local shell=$1
  printf '%s\n' "$2" 'megatron_train() { printf "<""<%s>>\n" "$*"; }' 'megatron_checkpoint() { megatron_train "$@"; }' \
    'megatron_preprocess() { megatron_train "$@"; }' 'megatron_generate() { megatron_train "$@"; }' \
    'megatron_clean() { megatron_train "$@"; }' 'megatron_launch() { megatron_train "$@"; }' "$3" exit |
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
  local file program
  for program in "${programs[@]}" megatron_launch; do
    file=$share/bash-completion/completions/$program
    # bash-completion reads the file of a command's name.
    check "completion of $program" bash -c 'source "$1" && complete -p "$2"' bash "$file" "$program"
  done
  if without_terminal "completion of bash"; then return; fi
  typing_folder
  local -r bash='bash --norc --noprofile -i' one="bind 'set bell-style none'; set +o history; source '$file'"
  local -r all="bind '\"\\t\": insert-completions'; $one"
  completes "$bash" "$all" $'megatron_train --prin\t' "--print-config --print-samples"
  completes "$bash" "$all" $'megatron_train boo\t' "books.toml books.txt"
  completes "$bash" "$one" $'megatron_train --set run.directory=ru\tbo\t' "--set run.directory=runs/books/"
  completes "$bash" "$one" $'megatron_generate runs/books --precision b\t' "runs/books --precision bf16"
  completes "$bash" "$all" $'megatron_generate runs/books --device=\t' "runs/books --device=auto cpu cuda"
  completes "$bash" "COMP_WORDBREAKS=\${COMP_WORDBREAKS//=}; $one" $'megatron_generate runs/books --device=cu\t' \
    "runs/books --device=cuda"
  completes "$bash" "$all" $'megatron_checkpoint \t' "diff export import info list merge reshape verify"
  completes "$bash" "$one" $'megatron_checkpoint reshape a b --pi\t4' "reshape a b --pipeline 4"
  completes "$bash" "$one" $'megatron_preprocess train-tok\t --type w\t' "train-tokenizer --type wordpiece"
  completes "$bash" "$all" $'megatron_clean s\t' "sample shuffle split"
  completes "$bash" "$one" $'megatron_clean text --white-space=m\t --max-top-2\t' "text --white-space=megatron --max-top-2-gram"
  completes "$bash" "$one" $'megatron_launch 8 megatron_tr\t books.to\t --dr\t' "8 megatron_train books.toml --dry-run"
}

completion_of_zsh() {
  if without zsh "completion of zsh" || without_terminal "completion of zsh"; then return; fi
  typing_folder
  local setup="unsetopt zle_bracketed_paste beep; autoload -Uz compinit bashcompinit; compinit -u -D; bashcompinit"
  setup+="; source '$share/bash-completion/completions/megatron_train'"
  local -r zsh='zsh -f -i'
  completes "$zsh" "$setup" $'megatron_train --dr\t' "--dry-run"
  completes "$zsh" "$setup" $'megatron_train books.to\t' "books.toml"
  completes "$zsh" "$setup" $'megatron_generate runs/books --precision=b\t' "runs/books --precision=bf16"
  completes "$zsh" "$setup" $'megatron_checkpoint resh\t' "reshape"
  completes "$zsh" "$setup" $'megatron_launch 8 megatron_train books.to\t --dr\t' "8 megatron_train books.toml --dry-run"
}
