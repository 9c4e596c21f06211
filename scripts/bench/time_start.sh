#!/usr/bin/env bash
# How long an 8-rank run needs from the launch to its first step when it resumes, and what of that is not ours.
# Usage: scripts/bench/time_start.sh [INPUT.toml [RUNS]], from the top level, with the programs built. The input's data must be
# there; without an input a small model is trained on a generated corpus. Each run is a step longer than the one before:
# with data.order = "megatron" the input must set data.order_samples, or resuming is refused.
set -euo pipefail
cd "$(dirname "$0")/../.."

input=${1:-}
runs=${2:-5}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

if [[ -z $input ]]; then
  input=$scratch/input.toml
  ./megatron_preprocess sample-corpus --output "$scratch/corpus.jsonl" --megabytes 0.2 > /dev/null
  ./megatron_preprocess --input "$scratch/corpus.jsonl" --output "$scratch/corpus" --tokenizer byte > /dev/null
  cat > "$input" << END
[model]
layers = 4
hidden_size = 32
attention_heads = 4
sequence_length = 16
[parallel]
tensor = 2
pipeline = 2
[train]
steps = 1
micro_batch_size = 2
global_batch_size = 8
[learning_rate]
peak = 1e-3
[data]
train = "$scratch/corpus"
END
fi

# median NAME: of the seconds on standard input.
median() {
  sort -n | awk -v name="$1" '{ s[NR] = $1 } END { if (NR == 0) exit 1
    printf "%-58s %.2f s (of %d: %.2f to %.2f)\n", name, s[int((NR + 1) / 2)], NR, s[1], s[NR] }'
}
quietly() {  # COMMAND...: its output is shown when it fails
  "$@" > "$scratch/output" 2>&1 && return
  tail -n 20 "$scratch/output" >&2
  echo "time_start: failed: $*" >&2
  exit 1
}
seconds_of() {
  local start
  start=$(date +%s.%N)
  quietly "$@"
  awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { print b - a }'
}
train() {  # STEPS
  quietly scripts/launch.sh 8 ./megatron_train "$input" --set run.directory="$scratch/run" --set train.steps="$1" \
    --set train.evaluate_every=0 --set checkpoint.every_steps=1000000
}

train 1
for ((i = 1; i <= runs; ++i)); do
  step=$((i + 1))
  start=$(date +%s.%N)
  train $step
  awk -v a="$start" -v s="\"step\":$step," 'index($0, s) && match($0, /"time":[0-9.]+/) {
    print substr($0, RSTART + 7, RLENGTH - 7) - a }' "$scratch/run/metrics.jsonl"
done | median "launch to the first step's line, 8 ranks, resumed"
for ((i = 0; i < runs; ++i)); do seconds_of scripts/launch.sh 8 true; done | median "  launcher alone: 8 x true"
for ((i = 0; i < runs; ++i)); do seconds_of ./megatron_train "$input" --print-config; done |
  median "  one process: libraries, input file"
