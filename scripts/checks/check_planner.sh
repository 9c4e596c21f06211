#!/usr/bin/env bash
# How well does megatron_plan predict this machine? Usage: scripts/checks/check_planner.sh [FOLDER], from the top level, with
# megatron_bench, megatron_plan, megatron_train and megatron_preprocess built. For a machine with 2 cores or more.
#
# Measures the machine (one rank of one and of two threads, two ranks) unless FOLDER has the files, predicts all runs
# below and writes the predictions to FOLDER/predictions.txt, then makes the runs and prints the measured seconds per step
# next to them. Ten of them are layouts of one model on two ranks: the last line says how far the planner's choice among
# these is from the fastest. Ends with 1 if a run's memory is not the predicted one; times are for people to judge.
# From the environment: ROUNDS (2), how often each run is started, the median of all its steps counts; STEPS (20) of each;
# PREFIX, in front of commands that are timed, as `chrt -f 50` where other programs share the cores.
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$(realpath -m "${1:-$(mktemp -d)}")
mkdir -p "$folder"
rounds=${ROUNDS:-2} steps=${STEPS:-20}
read -ra prefix <<< "${PREFIX:-}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# name | ranks | threads | keys beyond those of every run
runs='
gpt                 | 1 | 1 |
gpt, two threads    | 1 | 2 |
gpt, recomputation  | 1 | 1 | recompute.mode=full train.micro_batch_size=2
gpt, bf16           | 1 | 1 | precision.compute=bf16
llama               | 1 | 1 | model.position_embedding=rope model.normalization=rmsnorm model.activation=swiglu model.bias=false model.hidden_dropout=0 model.attention_dropout=0
experts             | 1 | 1 | moe.experts=4 moe.top_k=2 moe.ffn_hidden_size=1024
bert                | 1 | 1 | model.family=bert data.train=FOLDER/bert train.micro_batch_size=2
tensor              | 2 | 1 | parallel.tensor=2
sequence parallel   | 2 | 1 | parallel.tensor=2 parallel.sequence_parallel=true
data                | 2 | 1 | parallel.data=2
distributed         | 2 | 1 | parallel.data=2 optimizer.share=state
1f1b                | 2 | 1 | parallel.pipeline=2
gpipe               | 2 | 1 | parallel.pipeline=2 parallel.schedule=gpipe
interleaved         | 2 | 1 | parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2
zero bubble         | 2 | 1 | parallel.pipeline=2 parallel.schedule=zero_bubble
'
# Ten layouts of one model, for the search's winner.
layouts='
t2 mb1              | parallel.tensor=2
t2 mb2              | parallel.tensor=2 train.micro_batch_size=2
t2 mb2 sequence     | parallel.tensor=2 train.micro_batch_size=2 parallel.sequence_parallel=true
t2 mb4              | parallel.tensor=2 train.micro_batch_size=4
d2 mb1              | parallel.data=2
d2 mb2              | parallel.data=2 train.micro_batch_size=2
d2 mb2 distributed  | parallel.data=2 train.micro_batch_size=2 optimizer.share=state
p2 mb1 zero bubble  | parallel.pipeline=2 parallel.schedule=zero_bubble
p2 mb2              | parallel.pipeline=2 train.micro_batch_size=2
p2 mb1 interleaved  | parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2
'

quietly() {  # COMMAND...: its output is shown when it fails
  "$@" > "$folder/output" 2>&1 && return
  tail -n 20 "$folder/output" >&2
  echo "check_planner: failed: $*" >&2
  exit 1
}

cat > "$folder/input.toml" << END
[model]
layers = 4
hidden_size = 512
attention_heads = 8
sequence_length = 96
vocab_size = 2500
[train]
steps = $steps
micro_batch_size = 1
global_batch_size = 4
evaluate_every = 0
[learning_rate]
peak = 1e-3
[data]
train = "$folder/corpus"
split = "100,0,0"
[run]
metrics_every = 1
device = "cpu"
[checkpoint]
every_steps = 1000000
END
if [[ ! -e $folder/data ]]; then
  stories=$folder/corpus.jsonl
  quietly ./megatron_preprocess sample-corpus --output "$stories" --megabytes 0.5
  quietly ./megatron_preprocess --input "$stories" --output "$folder/corpus" --tokenizer byte
  quietly ./megatron_preprocess train-tokenizer --type wordpiece --input "$stories" --output "$folder/pieces" \
    --vocab-size 600
  quietly ./megatron_preprocess --input "$stories" --output "$folder/bert" --split-sentences --tokenizer bert-uncased \
    --vocab-file "$folder/pieces/vocab.txt"
  : > "$folder/data"
fi

each_run() {  # FUNCTION: of name, ranks, threads and --set options of all runs and layouts
  local name ranks threads keys key sets
  { cat <<< "$runs" && sed 's/|/| 2 | 1 |/' <<< "$layouts"; } | while IFS='|' read -r name ranks threads keys; do
    name=$(sed 's/ *$//' <<< "$name") ranks=${ranks// /} threads=${threads// /}
    [[ -n $name ]] || continue
    sets=(--set "run.threads=$threads")
    for key in ${keys//FOLDER/$folder}; do sets+=(--set "$key"); done
    "$1" "$name" "$ranks" "$threads" "${sets[@]}" < /dev/null
  done
}

hardware_of() { echo "$folder/$1-ranks-$2-threads.toml"; }  # RANKS THREADS
measure() {                                                # RANKS THREADS
  [[ -e $(hardware_of "$1" "$2") ]] && return
  echo "measuring the machine: $1 ranks of $2 threads"
  quietly "${prefix[@]}" scripts/launch.sh "$1" ./megatron_bench --hardware "$(hardware_of "$1" "$2")" --threads "$2" \
    --device cpu
}
measure 1 1
measure 1 2
measure 2 1

predict() {  # NAME RANKS THREADS SETS...
  local name=$1 ranks=$2 threads=$3
  shift 3
  quietly ./megatron_plan "$folder/input.toml" --hardware "$(hardware_of "$ranks" "$threads")" --ranks "$ranks" --explain \
    --output "$folder/plan.json" --force "$@"
  awk -F'[:,]' -v name="$name" '/"step_seconds"/ { s = $2 } /"memory_bytes"/ { m = $2 }
    END { printf "%s|%.6f|%d\n", name, s, m }' "$folder/plan.json"
}
each_run predict > "$folder/predictions.txt"
echo "predicted: $folder/predictions.txt"

step_seconds() {  # RUN_DIRECTORY: of all its steps but the first two
  sed -nE 's/.*"step": *([0-9]+),.*"step_seconds": *([0-9.e+-]+),.*/\1 \2/p' "$1/metrics.jsonl" | awk '$1 > 2 { print $2 }'
}
# The run's own comparison, and that its plan is the planner's.
check_memory() {  # NAME
  local planned
  planned=$(awk -F'|' -v name="$1" '$1 == name { printf "%.1f", $3 / 1048576 }' "$folder/predictions.txt")
  if ! grep -q 'as predicted, to the byte' "$folder/output" ||
    ! awk -v planned="$planned" '$1 == "predicted" && $6 == planned { found = 1 } END { exit !found }' "$folder/output"; then
    echo "check_planner: $1: the run's memory is not the predicted $planned MiB" >&2
    exit 1
  fi
}
: > "$folder/seconds.txt"
run() {  # NAME RANKS THREADS SETS...
  local name=$1 ranks=$2
  shift 3
  rm -rf "$folder/run"
  quietly "${prefix[@]}" scripts/launch.sh "$ranks" ./megatron_train "$folder/input.toml" --set run.directory="$folder/run" "$@"
  check_memory "$name"
  step_seconds "$folder/run" | sed "s/^/$name|/" >> "$folder/seconds.txt"
}
for ((round = 0; round < rounds; ++round)); do each_run run; done

awk -F'|' '
  function median(list, count,   i, j, t) {
    for (i = 2; i <= count; ++i) {
      t = list[i]
      for (j = i - 1; j >= 1 && list[j] > t; --j) list[j + 1] = list[j]
      list[j + 1] = t
    }
    return list[int((count + 1) / 2)]
  }
  FNR == NR { predicted[$1] = $2; order[++names] = $1; next }
  { taken[$1, ++taken_of[$1]] = $2 }
  END {
    print "| run | predicted, ms | measured, ms | error, % |\n|---|---|---|---|"
    for (i = 1; i <= names; ++i) {
      name = order[i]
      for (j = 1; j <= taken_of[name]; ++j) list[j] = taken[name, j]
      seconds[name] = median(list, taken_of[name])
      error = 100 * (predicted[name] / seconds[name] - 1)
      printf "| %s | %.1f | %.1f | %+.1f |\n", name, 1e3 * predicted[name], 1e3 * seconds[name], error
      if (i > names - 10) {
        if (!winner || predicted[name] < predicted[winner]) winner = name
        if (!best || seconds[name] < seconds[best]) best = name
      } else if (error * error > worst * worst) worst = error
    }
    printf "worst of the runs %+.1f %%; of ten layouts the planner chooses %s, %.1f %% above the fastest, %s\n",
      worst, winner, 100 * (seconds[winner] / seconds[best] - 1), best
  }' "$folder/predictions.txt" "$folder/seconds.txt"
