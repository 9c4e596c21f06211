#!/usr/bin/env bash
# Makes the system calls fail with which the tools read and write files, one at a time: preprocess, import, export and
# merge of data, train-tokenizer, steps of megatron_clean; export, import, merge and reshape of checkpoints. A tool must say so, or
# end with 0 and all of its output; its sources and an older target are as they were, and after a kill the same command gives the right result.
# Usage: tool_faults.sh PROGRAMS_FOLDER [MOST]: at most MOST injections a tool, spread evenly (default: all). Needs
# strace (exit 77, "skipped", without it). ONLY="NAME...": these tools alone. FAULTS="EIO KILL": these faults alone.
# IN_TURN=1: every call, each with the next one of the faults.
set -uo pipefail
programs=$(cd "$1" && pwd) || exit 1
most=${2:-1000000}
export OMP_NUM_THREADS=1
export OMPI_MCA_ess_singleton_isolated=1  # no process of MPI's own, which the faults would reach as well
command -v strace >/dev/null || { echo "strace is not installed: skipped"; exit 77; }
strace -f -qq -o /dev/null true 2>/dev/null || { echo "strace may not trace here: skipped"; exit 77; }
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
base="$scratch/base" work="$scratch/work"
preprocess="$programs/megatron_preprocess" checkpoint="$programs/megatron_checkpoint"

quietly() { "$@" >"$scratch/log" 2>&1 || { echo "cannot prepare: $*"; cat "$scratch/log"; exit 1; }; }

# --- sources --------------------------------------------------------------------------------------------------------
mkdir "$base"
cd "$base" || exit 1
quietly "$preprocess" sample-corpus --output text.jsonl --megabytes 0.02
gzip -k text.jsonl
quietly "$preprocess" sample-corpus --output older.jsonl --megabytes 0.01 --seed 7
quietly "$preprocess" train-tokenizer --input text.jsonl --output vocabulary --vocab-size 300
gpt2="--tokenizer gpt2 --vocab-file vocabulary/vocab.json"
# shellcheck disable=SC2086
quietly "$preprocess" --input text.jsonl --output set $gpt2
quietly "$preprocess" export set indexed
cat >input.toml <<'TOML'
[model]
layers = 2
hidden_size = 16
attention_heads = 2
sequence_length = 16
[train]
steps = 1
micro_batch_size = 1
global_batch_size = 1
[data]
train = "set"
[run]
directory = "run"
[checkpoint]
every_steps = 1
TOML
quietly "$programs/megatron_train" input.toml
quietly "$checkpoint" export run model --format gpt2
rm -f run/lock run/.lock

# --- one tool -------------------------------------------------------------------------------------------------------
cases=0 failures=0 refused=0

# Scratch files that could not be removed are no output: programs that read the folder do not see them.
tree() {
  (cd "$1" && find . -type f ! -path '*.tmp*' ! -path '*/.megatron_clean.scratch/*' ! -name '*.replaced*' ! -name '.*.lock' -print0 | sort -z |
    xargs -0 -r sha256sum)
}
wrong() { echo "FAILED: $*"; tail -n 3 "$scratch/log"; failures=$((failures + 1)); }

# The system calls that have to do with the working folder, NAME NUMBER each, of the thread with most of them: strace
# counts the calls of every thread for itself.
calls_of() {
  strace -f -qq -y -o "$scratch/trace" "$@" >"$scratch/log" 2>&1 || return 1
  awk -v folder="$work" '
    match($2, /^[a-z0-9_]+\(/) {
      name = substr($2, 1, RLENGTH - 1)
      number = ++count[$1, name]
      gsub(/AT_FDCWD<[^>]*>, "\//, "\"/")  # a file that has nothing to do with the folder the tool was started in
      if (index($0, folder) == 0 || name ~ /^(execve|chdir|getcwd|readlink|readlinkat|lseek|fcntl|flock|ioctl|mmap)$/) next
      calls[$1] = calls[$1] name " " number "\n"
      if (++found[$1] > found[most]) most = $1
    }
    END { printf "%s", calls[most] }' "$scratch/trace"
}

begin() {  # a fresh working folder, with what the tool at hand finds there
  cd "$scratch" || exit 1
  rm -rf "$work"
  cp -r "$before" "$work"
  cd "$work" || exit 1
}

check() {  # CODE FAULT: what a tool that was not killed has left
  local after
  after=$(tree "$work")
  if (($1 == 0)); then
    [[ $after == "$right" ]] || wrong "$name, $2: ended with 0 and other output"
    return
  fi
  refused=$((refused + 1))
  [[ $after == "$former" || $after == "$right" ]] || wrong "$name, $2: ended with $1 and lost something"
  # The dynamic linker and MPI's start have their own codes.
  if (($1 == 1 || $1 > 7)) && (($1 != 127)) && ! grep -q 'MPI_INIT' "$scratch/log"; then
    wrong "$name, $2: ended with $1"
  fi
}

# NAME and the command, which is run in a copy of the folder $before.
inject() {
  name=$1
  shift
  [[ -z ${ONLY:-} || " $ONLY " == *" $name "* ]] || return 0
  begin
  former=$(tree "$work")
  local calls every i=0 call number fault code turn=0 done_here=0 wrong_before=$failures refused_before=$refused
  calls=$(calls_of "$@") || { wrong "$name: fails without a fault"; return; }
  right=$(tree "$work")
  local faults=(${FAULTS:-EIO ENOSPC EDQUOT ESTALE KILL})
  [[ -n $calls ]] || { wrong "$name: no system calls are seen"; return; }
  local total=$(($(wc -l <<<"$calls") * ${#faults[@]}))
  every=$(((total + most - 1) / most))
  until ((every == 1 || (every % 2 != 0 && every % 3 != 0 && every % 5 != 0))); do every=$((every + 1)); done  # all faults
  while read -r call number; do
    turn=$((turn + 1))
    for fault in "${faults[@]}"; do
      i=$((i + 1))
      if [[ -n ${IN_TURN:-} ]]; then
        [[ $fault == "${faults[turn % ${#faults[@]}]}" ]] || continue
      elif ((i % every != 0)); then
        continue
      fi
      begin
      cases=$((cases + 1)) done_here=$((done_here + 1))
      local what="error=$fault"
      [[ $fault == KILL ]] && what=signal=SIGKILL
      timeout 60 strace -f -qq -y -o "$scratch/trace" -e "trace=$call" -e "inject=$call:$what:when=$number" "$@" \
        >"$scratch/log" 2>&1 </dev/null
      code=$?
      if ((code == 124 || code == 134 || code == 139)); then
        # Calls are not numbered alike in every run: this one may be of MPI's own, between its threads.
        { grep -q INJECTED "$scratch/trace" && ! grep INJECTED "$scratch/trace" | grep -qF "$work"; } ||
          wrong "$name, $call $number $fault: hung or crashed ($code)"
      elif [[ $fault != KILL ]]; then
        check "$code" "$call $number $fault"
      elif [[ $(tree "$work") != "$right" ]]; then
        "$@" >"$scratch/log" 2>&1 || wrong "$name, killed at $call $number: cannot be repeated"
        [[ $(tree "$work") == "$right" ]] || wrong "$name, killed at $call $number: other output when repeated"
        [[ -z $(find "$work" -path '*.tmp*' -o -name '.*.lock') ]] ||
          wrong "$name, killed at $call $number: what it had left is still there when it was repeated"
      fi
    done
  done <<<"$calls"
  echo "$name: $((total / ${#faults[@]})) calls, $done_here faults: $((refused - refused_before)) refused," \
    "$((failures - wrong_before)) wrong"
}

# An older target is there for the tools that replace one.
before="$scratch/replacing"
cp -r "$base" "$before"
cd "$before" || exit 1
# shellcheck disable=SC2086
quietly "$preprocess" --input older.jsonl --output new $gpt2
quietly "$preprocess" export new out
# shellcheck disable=SC2086
inject preprocess "$preprocess" --input text.jsonl --output new $gpt2 --overwrite
inject data-merge "$preprocess" merge set set new --overwrite
inject data-export "$preprocess" export set out --overwrite
# shellcheck disable=SC2086
inject data-import "$preprocess" import indexed new $gpt2 --overwrite
inject train-tokenizer "$preprocess" train-tokenizer --input older.jsonl --output vocabulary --vocab-size 290 --overwrite
before=$base
inject clean-text "$programs/megatron_clean" text --input text.jsonl.gz --output cleaned
inject clean-duplicates "$programs/megatron_clean" duplicates --input text.jsonl --output cleaned
inject merge "$checkpoint" merge run out
inject reshape "$checkpoint" reshape run out --tensor 2 --pipeline 1
inject export "$checkpoint" export run out --format gpt2
inject import "$checkpoint" import model out

echo "$cases faults: $refused refused, $failures wrong"
((failures == 0 && refused > 0))
