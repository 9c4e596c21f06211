#!/usr/bin/env bash
# Trains the inputs of the gallery and compares each with what its head expects: validation loss, minutes, and words of
# the text that the model writes. Usage: scripts/gallery.sh [NAME|FILE.toml...]   (default: all of inputs/ with such a head)
#
# The last line names what passed, failed, or was skipped because its text is not there. Ends with 1 if anything failed.
# From the environment: MEGATRON_TEXT (see fetch_text.sh), PROGRAMS (folder of the programs; default: the repository),
# GALLERY_FOLDER (where data/ and runs/ go; default: the repository), GALLERY_PATIENCE (times the expected minutes that
# an input may take; default 5, for slower or busy machines), GALLERY_STEPS (a trial of that many steps, whose loss only
# has to fall), GALLERY_MEGABYTES (of stories; default 4).
#
# A head has lines "# gallery.KEY = VALUE"; docs/gallery.md lists them.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
scripts=$root/scripts
programs=$(cd "${PROGRAMS:-$root}" && pwd)
# Names of files are relative to where the user is; data/ and runs/ to the gallery's folder.
inputs=()
for name in "$@"; do
  if [[ $name == *.toml ]]; then inputs+=("$(realpath "$name")"); else inputs+=("$root/inputs/$name.toml"); fi
done
(($# > 0)) || mapfile -t inputs < <(grep -l '^# gallery\.data = ' "$root"/inputs/*.toml)
cd "${GALLERY_FOLDER:-$root}" || exit 1
data=data/gallery
patience=${GALLERY_PATIENCE:-5}
short=${GALLERY_STEPS:-}
runs=runs/gallery${short:+_short}
mkdir -p "$data"

value() { sed -n "s/^# gallery\.$1 = //p" "$input"; }  # KEY, of the current input
complain() { echo "gallery: $name: $1" >&2; }

# ---- data -------------------------------------------------------------------------------------------------------------
shards() {  # NAME ARGUMENT...: makes data/gallery/NAME once
  local to=$data/$1
  shift
  [[ -f $to-00000.h5 ]] || "$programs/megatron_preprocess" --output "$to" "$@"
}
make_stories() {  # FILE SEED MEGABYTES
  [[ -s $1 ]] || "$programs/megatron_preprocess" sample-corpus --output "$1" --megabytes "${GALLERY_MEGABYTES:-$3}" --seed "$2"
}
in_capitals() { sed -E 's/.*/\U&/; s/^\{"TEXT"/{"text"/; s/\\N/\\n/g' "$1"; }  # FILE; keys and line breaks stay
prepare() {  # NAME
  case $1 in
    stories) make_stories "$data/stories.jsonl" 1 4 && shards stories --input "$data/stories.jsonl" ;;
    capitals)
      make_stories "$data/small_stories.jsonl" 2 2 || return 1
      in_capitals "$data/small_stories.jsonl" > "$data/capitals.jsonl" &&
        shards capitals --input "$data/capitals.jsonl"
      ;;
    last_words)  # files of an evaluation task, of stories that no other set has
      make_stories "$data/other_stories.jsonl" 3 1 || return 1
      head -n 60 "$data/other_stories.jsonl" > "$data/last_words.jsonl" &&
        in_capitals "$data/last_words.jsonl" > "$data/last_words_in_capitals.jsonl"
      ;;
    shakespeare) shards shakespeare --input data/text/shakespeare.txt ;;
    wikitext)
      local text=data/text/wikitext2_valid.txt vocabulary=$data/wikitext_vocabulary
      [[ -f $vocabulary/merges.txt ]] ||
        "$programs/megatron_preprocess" train-tokenizer --input "$text" --output "$vocabulary" --vocab-size 2048 || return 1
      shards wikitext --input "$text" --tokenizer gpt2 --vocab-file "$vocabulary/vocab.json" \
        --merge-file "$vocabulary/merges.txt"
      ;;
    *) echo "gallery: no data '$1'" >&2 && return 1 ;;
  esac
}

# ---- training ---------------------------------------------------------------------------------------------------------
train() {  # INPUT DIRECTORY RANKS KEY=VALUE...
  local file=$1 directory=$2 ranks=$3 settings=()
  shift 3
  if [[ -n $short ]]; then
    set -- train.steps="$short" train.evaluate_every=0 train.evaluate_steps=1 run.log_every=1 checkpoint.every_steps="$short" "$@"
  fi
  for setting in "$@"; do settings+=(--set "$setting"); done
  rm -rf "$directory"
  "$scripts/launch.sh" "$ranks" "$programs/megatron_train" "$file" --set run.directory="$directory" "${settings[@]}"
}

validation_loss() { sed -n 's/^{"kind":"eval","split":"validation"[^{]*"loss":\([-+0-9.e]*\),.*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
training_losses() { sed -n 's/^{"kind":"train"[^{]*"loss":\([-+0-9.e]*\),.*/\1/p' "$1/metrics.jsonl"; }

# The model that this one starts from, as it comes back from Hugging Face's format.
import_base() {  # BASE
  local input=$root/inputs/$1.toml run=$runs/$1 set
  read -r set _ <<< "$(value data)"
  prepare "$set" || return 1
  if ! compgen -G "$run/checkpoints/step_*" > /dev/null; then
    train "$input" "$run" "$(value ranks)" || return 1
  fi
  rm -rf "${run}_hugging_face" "${run}_imported"
  "$programs/megatron_checkpoint" export "$run" "${run}_hugging_face" &&
    "$programs/megatron_checkpoint" import "${run}_hugging_face" "${run}_imported" --data-prefix "$data/$set"
}

# Every layout has the losses of the first run, step by step.
compare_layouts() {  # DIRECTORY
  local line ranks settings difference steps
  while read -r line; do
    read -r ranks settings <<< "$line"
    # shellcheck disable=SC2086  # settings are words
    train "$input" "$1_layout" "$ranks" $settings > /dev/null || { complain "failed with $settings"; return 1; }
    read -r steps difference < <(paste <(training_losses "$1") <(training_losses "$1_layout") |
      awk 'NF == 2 { d = ($1 - $2) / $1; d = d < 0 ? -d : d; if (d > most) most = d; n++ } END { printf "%d %.1e\n", n, most }')
    printf '  %-75s %d ranks: %d losses, at most %s apart\n' "$settings" "$ranks" "$steps" "$difference"
    awk -v d="$difference" -v n="$steps" 'BEGIN { exit !(n > 0 && d <= 1e-5) }' ||
      { complain "another loss with $settings"; return 1; }
  done < <(value layout)
}

check_loss() {  # DIRECTORY
  local loss low high
  loss=$(validation_loss "$1")
  if [[ -n $short ]]; then
    awk -v last="${loss:-nan}" -v first="$(training_losses "$1" | head -n 1)" 'BEGIN { exit !(last < first) }' && return
    complain "validation loss ${loss:-none}, the first step had $(training_losses "$1" | head -n 1)"
    return 1
  fi
  read -r low _ high < <(value loss)
  echo "  validation loss ${loss:-none}, expected $low to $high"
  awk -v x="${loss:-nan}" -v low="$low" -v high="$high" 'BEGIN { exit !(x >= low && x <= high) }' ||
    { complain "validation loss ${loss:-none} is not within $low to $high"; return 1; }
}

# Evaluation tasks, each by its name: at the end of the run.
check_tasks() {  # DIRECTORY
  local task loss low high
  while read -r task low _ high; do
    loss=$(sed -n 's/^{"kind":"task","name":"'"$task"'"[^{]*"loss":\([-+0-9.e]*\),.*/\1/p' "$1/metrics.jsonl" | tail -n 1)
    echo "  task $task: loss ${loss:-none}, expected $low to $high"
    [[ -n $short && -n $loss ]] && continue
    awk -v x="${loss:-nan}" -v low="$low" -v high="$high" 'BEGIN { exit !(x >= low && x <= high) }' ||
      { complain "task $task has the loss ${loss:-none}, which is not within $low to $high"; return 1; }
  done < <(value task)
}

check_minutes() {  # SECONDS
  local expected
  expected=$(value minutes)
  echo "  $(awk -v s="$1" 'BEGIN { printf "%.1f", s / 60 }') minutes of training, expected $expected on two free cores"
  awk -v s="$1" -v m="$expected" -v patience="$patience" 'BEGIN { exit !(s <= 60 * m * patience) }' ||
    { complain "took more than $patience times as long as expected (GALLERY_PATIENCE)"; return 1; }
}

check_sample() {  # DIRECTORY
  local text
  text=$("$programs/megatron_generate" "$1" --prompt "$(value prompt)" --max-new-tokens 200 --temperature 0.7 --seed 1) || return 1
  sed 's/^/  | /' <<< "$text"
  [[ -n $short ]] && return
  grep -qE "$(value sample)" <<< "$text" || { complain "no match for $(value sample) in the text"; return 1; }
}

run() {  # of the current input: 0 passed, 1 failed, 77 skipped
  local text part base directory=$runs/$name begin seconds settings=()
  for text in $(value text); do "$scripts/fetch_text.sh" "$text" || return 77; done
  for part in $(value data); do prepare "$part" || return 1; done
  base=$(value base)
  if [[ -n $base ]]; then
    import_base "$base" || return 1
    settings=(checkpoint.initialize_from="$runs/${base}_imported")
  fi
  begin=$(date +%s%N)
  train "$input" "$directory" "$(value ranks)" "${settings[@]}" || return 1
  seconds=$(awk -v ns="$(($(date +%s%N) - begin))" 'BEGIN { print ns / 1e9 }')
  check_loss "$directory" || return 1
  if [[ -n $(value task) ]]; then check_tasks "$directory" || return 1; fi
  if [[ -n $(value layout) ]]; then compare_layouts "$directory" || return 1; fi
  if [[ -n $(value prompt) ]]; then check_sample "$directory" || return 1; fi
  [[ -n $short ]] || check_minutes "$seconds"
}

passed=() failed=() skipped=()
for input in "${inputs[@]}"; do
  name=$(basename "$input" .toml)
  printf '\n== %s\n' "$name"
  if [[ ! -f $input ]] || ! grep -q '^# gallery\.data = ' "$input"; then
    echo "gallery: $input: no such input, or none with a head of the gallery's" >&2
    failed+=("$name")
    continue
  fi
  sed -n '1s/^# //p' "$input"
  run
  case $? in
    0) passed+=("$name") ;;
    77) skipped+=("$name") ;;
    *) failed+=("$name") ;;
  esac
done
echo
echo "gallery: ${#passed[@]} passed${passed[*]:+ (${passed[*]})}, ${#failed[@]} failed${failed[*]:+ (${failed[*]})}," \
  "${#skipped[@]} skipped${skipped[*]:+ (${skipped[*]})}"
((${#failed[@]} == 0))
