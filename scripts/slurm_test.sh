#!/usr/bin/env bash
# Submits the job files of slurm/ to a real Slurm (scripts/private_slurm.sh starts one) with the real programs on 8
# tasks, and checks what becomes of the jobs. Usage: make slurm-test, or scripts/slurm_test.sh
# Takes about three minutes. Ends with 0, 1 when something was wrong, or 77 and a reason where no private
# Slurm can be started. From the environment: BUILD (folder with the programs, build).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

build=$(cd "${BUILD:-build}" && pwd) || exit 1
for program in megatron_train megatron_preprocess megatron_checkpoint; do
  [[ -x $build/$program ]] || { echo "slurm_test: $build/$program is not built" >&2; exit 1; }
done
if [[ ${1:-} != inside ]]; then
  exec scripts/private_slurm.sh run "$0" inside
fi

# ---- A place that looks like the top of the repository, with a small corpus -------------------------------------------
work=$(mktemp -d /tmp/slurm_test_XXXXXX)
trap 'rm -rf "$work"' EXIT
ln -s "$PWD/slurm" "$build/megatron_train" "$build/megatron_preprocess" "$build/megatron_checkpoint" "$work"
cd "$work" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

failures=0
failed() {
  echo "  FAILED: $*"
  failures=$((failures + 1))
}

expect_text() {  # FILE TEXT [COUNT]
  local count
  count=$(grep -c -F -- "$2" "$1")
  if [[ -n ${3:-} ]]; then
    ((count == $3)) || failed "$1 says \"$2\" $count times, not $3"
  else
    ((count > 0)) || failed "$1 does not say \"$2\""
  fi
}

field() {  # JOB NAME
  scontrol --oneliner show job "$1" | sed -n "s/.* $2=\([^ ]*\).*/\1/p"
}

expect_state() {  # JOB STATE [EXIT_CODE]
  local state code
  state=$(field "$1" JobState) code=$(field "$1" ExitCode)
  [[ $state == "$2" ]] || failed "job $1 ended as $state, not $2"
  [[ ${code%%:*} == "${3:-0}" ]] || failed "job $1 ended with exit code $code, not ${3:-0}"
}

# Waits for the end of a job, turns in the queue included.
finish() {  # JOB
  local waited state
  for ((waited = 0; waited < 1800; ++waited)); do
    state=$(field "$1" JobState)
    case $state in
      COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) return ;;
    esac
    sleep 0.2
  done
  failed "job $1 is still $state after six minutes"
  cat -- *-"$1".out
  scancel --full --signal=KILL "$1"
}

# Waits until a run has this number of lines of metrics.
progressed() {  # DIRECTORY LINES
  local waited
  for ((waited = 0; waited < 600; ++waited)); do
    (($(lines "$1") >= $2)) && return
    sleep 0.1
  done
  failed "$1 has only $(lines "$1") of $2 lines after a minute"
}

says() {  # FILE TEXT: waits until it does
  local waited
  for ((waited = 0; waited < 900; ++waited)); do
    grep -q -F -- "$2" "$1" 2> /dev/null && return
    sleep 0.1
  done
  failed "$1 does not say \"$2\" after a minute and a half"
}

trained() {  # DIRECTORY: the last step of its metrics
  sed -n '/"kind":"train"/s/.*"step":\([0-9]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1
}

lines() {
  if [[ -e $1/metrics.jsonl ]]; then wc -l < "$1/metrics.jsonl"; else echo 0; fi
}

# metrics.jsonl without what depends on time.
numbers() {  # DIRECTORY [LINES]
  sed -E 's/"(step_seconds|tokens_per_second|model_tflops_per_rank|hardware_tflops_per_rank|time)":[^,}]*,?//g' \
    "$1/metrics.jsonl" | head -n "${2:-1000000000}"
}

# As far as both come; the straight run ends with two evaluations that a longer run does not have there.
expect_same_numbers() {  # DIRECTORY
  local both=$(($(lines straight) - 2))
  (($(lines "$1") >= both)) || both=$(lines "$1")
  cmp <(numbers "$1" "$both") <(numbers straight "$both") || failed "$1 has other numbers than the run without a break"
}

submit() {  # DIRECTORY [SBATCH_OPTION...] -- [SETTING...]
  local directory=$1 options=() settings=()
  shift
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  for setting in "run.directory=$directory" "$@"; do settings+=(--set "$setting"); done
  sbatch --parsable "${options[@]}" slurm/train.sbatch input.toml "${settings[@]}"
}

section() {
  echo "== $*"
}

cat > input.toml << 'END'
[model]
layers = 4
hidden_size = 64
attention_heads = 4
sequence_length = 64

[parallel]
tensor = 2
pipeline = 2

[train]
steps = 100000
micro_batch_size = 2
global_batch_size = 16
evaluate_every = 50
evaluate_steps = 2

[learning_rate]
peak = 1e-3
minimum = 1e-4
warmup_steps = 2
decay_steps = 1000     # said here, so that it does not move with train.steps

[data]
train = "data/corpus"
split = "90,8,2"
END

section "turn.sh tells progress from none, and a requeueing that fails (with stand-ins for srun and scontrol)"
mkdir stand_in
cat > stand_in/srun << 'END'
#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec "$@"
END
cat > stand_in/trainer << 'END'
#!/bin/bash
save() { mkdir -p "$run/checkpoints/step_$1" && touch "$run/checkpoints/step_$1/manifest.json"; }
if [[ $2 == --print-config ]]; then
  printf '[data]\ndirectory = "other"\n[run]\ndirectory = "%s"\n' "$run"
else
  eval "$does"
  exit 75
fi
END
cat > stand_in/scontrol << 'END'
#!/bin/bash
exit "$refused"
END
chmod +x stand_in/*

turn() {  # RUN WHAT_THE_TRAINER_DOES EXIT_CODE TEXT [EXIT_CODE_OF_SCONTROL]
  local code=0
  run=$1 does=$2 refused=${5:-0} PATH=$PWD/stand_in:$PATH SLURM_JOB_ID=1 SLURM_JOB_NODELIST=here \
    slurm/turn.sh -- trainer input.toml > turn.log 2>&1 || code=$?
  ((code == $3)) || failed "turn.sh ended with $code, not $3, after: $2"
  expect_text turn.log "$4"
}

turn "a turn" "save 00000000" 75 "gained nothing"
turn "a turn" "save 00000020" 75 "stopped at step 20: back to the queue"
turn "a turn" "true" 75 "gained nothing"
turn "a turn" "save 00000020" 75 "stopped at step 20: back to the queue"  # the same step, one evaluation further
turn "a turn" "save 00000015" 75 "stopped at step 15: back to the queue"  # 20 was damaged
turn "a turn" "rm -r '$PWD/a turn/checkpoints/step_00000015'" 75 "gained nothing"
turn "a turn" "save 00000030" 75 "scontrol requeue failed" 1
turn "a turn" "save 00000040; exit 137" 137 "step 40 is saved: submitted again, the job continues from it"
turn "a turn" "exit 6" 6 "step 40 is saved: submitted again, the job continues from it"
turn 'a \"turn\"' "save 00000030" 2 "a name without quotes, backslashes"

section "preprocess.sbatch makes the shards that one process makes"
./megatron_preprocess sample-corpus --output corpus.jsonl --megabytes 1 > /dev/null || exit 1
./megatron_preprocess --input corpus.jsonl --output alone/corpus --tokenizer byte > /dev/null || exit 1
job=$(sbatch --parsable --wait slurm/preprocess.sbatch --input corpus.jsonl --output data/corpus --tokenizer byte)
expect_state "$job" COMPLETED
cmp data/corpus-00000.h5 alone/corpus-00000.h5 || failed "the shards differ"

section "a time limit that is too short: stopped, requeued, resumed, finished"
job=$(submit limited --time=00:01:00 --signal=USR1@25 -- checkpoint.every_steps=1000)
log=megatron_train-$job.out
says "$log" "back to the queue"
# How far a turn of at most 35 seconds comes is unknown beforehand: the length is set while the job is waiting.
sed -i "s/^steps = .*/steps = $(($(trained limited) + 33))/" input.toml
finish "$job"
sed -i "s/^steps = .*/steps = 100000/" input.toml
expect_state "$job" COMPLETED
restarts=$(field "$job" Restarts)
((restarts >= 1)) || failed "job $job was never requeued"
expect_text "$log" "stopped on SIGUSR1" "$restarts"
expect_text "$log" "resuming from" "$restarts"
expect_text "$log" "== job $job, restart $restarts, "
expect_text limited/run.log "Slurm $job, restarts $restarts"

section "the same without a break has the same numbers"
steps=$(trained limited)
OMPI_MCA_mpi_yield_when_idle=1 srun --ntasks=8 --mpi=pmix ./megatron_train input.toml --set run.directory=straight \
  --set "train.steps=$steps" > straight.log 2>&1 || failed "$(cat straight.log)"
cmp <(numbers straight) <(numbers limited) || failed "the runs with and without a break have other numbers"
(($(lines limited) > steps)) || failed "limited has $(lines limited) lines after $steps steps"
echo "  $steps steps, restarts: $restarts"

section "scancel --signal=USR1: back to the queue; run.max_minutes: likewise; a file STOP: stopped for good"
job=$(submit asked --time=00:10:00 --signal=USR1@60 -- run.max_minutes=0.5)
progressed asked 10
scancel --signal=USR1 "$job"
progressed asked $(($(lines asked) + 10))
log=megatron_train-$job.out
says "$log" "stopped on run.max_minutes"
progressed asked $(($(lines asked) + 10))
touch asked/STOP
finish "$job"
expect_state "$job" FAILED 75
expect_text "$log" "stopped on SIGUSR1" 1
expect_text "$log" "stopped on run.max_minutes = 0.5"
expect_text "$log" "stopped on asked/STOP" 1
expect_text "$log" "== asked/STOP is there: not requeued" 1
expect_same_numbers asked
job=$(submit asked --time=00:10:00 -- )
finish "$job"
expect_state "$job" FAILED 75
expect_text "megatron_train-$job.out" "stopped on asked/STOP before the first step"

section "a turn that gains nothing is not repeated"
job=$(submit short --time=00:10:00 -- run.max_minutes=0.001)
finish "$job"
expect_state "$job" FAILED 75
expect_text "megatron_train-$job.out" "== this turn gained nothing, no step and no evaluation: not requeued"

section "kill -9 of one rank ends the job, without requeueing; scancel ends it, and saves"
job=$(submit killed --time=00:10:00 -- checkpoint.every_steps=10)
progressed killed 25
victim=
for process in /proc/[0-9]*; do
  if grep -z -q "^SLURM_JOB_ID=$job$" "$process/environ" 2> /dev/null &&
    grep -z -q "^SLURM_PROCID=5$" "$process/environ" && [[ $(< "$process/comm") == megatron_train ]]; then
    victim=${process##*/}
  fi
done
kill -KILL "$victim" || failed "rank 5 was not found"
finish "$job"
expect_state "$job" FAILED 137
expect_text "megatron_train-$job.out" "back to the queue" 0
job=$(submit killed --time=00:10:00 --)
progressed killed $(($(lines killed) + 20))
scancel "$job"
finish "$job"
expect_state "$job" CANCELLED
expect_text "megatron_train-$job.out" "resuming from"
expect_text "megatron_train-$job.out" "stopped on SIGTERM" 1
expect_same_numbers killed

section "a chain: the second job continues, the third finds nothing to do"
chained=()
while read -r job; do chained+=("$job"); done < <(slurm/chain.sh 3 --time=00:10:00 slurm/train.sbatch input.toml \
  --set run.directory=chained --set train.steps=100)
progressed chained 10
scancel --signal=USR1 "${chained[0]}"
finish "${chained[2]}"
expect_state "${chained[0]}" FAILED 75
expect_text "megatron_train-${chained[0]}.out" "another job continues"
expect_state "${chained[1]}" COMPLETED
expect_text "megatron_train-${chained[1]}.out" "resuming from"
expect_state "${chained[2]}" COMPLETED
expect_text "megatron_train-${chained[2]}.out" "already complete"

section "mistakes end at once, with the trainer's exit codes"
job=$(submit wrong --time=00:10:00 -- train.stepz=5)
finish "$job"
expect_state "$job" FAILED 2
expect_text "megatron_train-$job.out" "unknown key 'train.stepz'; did you mean 'steps'?"
job=$(sbatch --parsable --gpus-per-node=0 --cpus-per-task=1 slurm/train_gpu.sbatch input.toml)
finish "$job"
expect_state "$job" FAILED 2
expect_text "megatron_train-$job.out" 'run.device = "cuda"'

section "a checkpoint is merged"
job=$(sbatch --parsable slurm/merge.sbatch limited merged)
finish "$job"
expect_state "$job" COMPLETED
expect_text "merged/manifest.json" '"step"'

if ((failures > 0)); then
  for log in *.out; do printf '\n---- %s\n' "$log"; tail -n 40 "$log"; done
  echo "slurm_test: $failures checks failed"
  exit 1
fi
echo "slurm_test: all as it should be"
