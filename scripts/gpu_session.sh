#!/usr/bin/env bash
# All that a GPU is asked for, the most valuable first, inside a given time. Each step has a limit; what it said and how
# it ended is on the disk as soon as it is known, so that a machine that goes away takes one step with it, not all.
#
#   scripts/gpu_session.sh [--output FOLDER] [--again STEP,...] SECONDS
#
# FOLDER (default: $OUT, else $BUILD/gpu_session) gets summary.tsv, a line per step that began: step, result, seconds,
# its last line; session.log, all that they said; rows.jsonl, the speeds. Given the same FOLDER, or a copy, a later call
# continues with the steps that are not in the summary yet. A step that the time cut short is repeated; one that ended
# the machine (result "lost") is not, but for --again. scripts/gpu_report.py makes the rows of docs/gpu_validation.md.
#
# From the environment: BUILD (build), PYTHON (python3: one that has PyTorch), TINY=1 (small sizes: a rehearsal),
# PATIENCE (1: a factor of all limits, for slower machines).
# Ends with 0 when all steps passed, 3 when the time is used up before, 1 otherwise.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

export BUILD=${BUILD:-build}
output=${OUT:-$BUILD/gpu_session} again=''
while [[ ${1:-} == --* ]]; do
  case $1 in
    --output) output=$2 ;;
    --again) again=$2 ;;
    *) echo "gpu-session: there is no $1" >&2; exit 1 ;;
  esac
  shift 2
done
[[ ${1:-} =~ ^[0-9]+$ ]] || { echo "usage: scripts/gpu_session.sh [--output FOLDER] [--again STEP,...] SECONDS" >&2; exit 1; }
deadline=$((SECONDS + $1))
mkdir -p "$output" || exit 1
summary=$output/summary.tsv log=$output/session.log rows=$output/rows.jsonl
touch "$summary" "$log" "$rows"

# Of a gpu_pack, programs start through its ./run. LIMIT: a little less than the seconds that the step has.
run=''
[[ -x ./run ]] && run='./run '
test="scripts/gpu_test.sh --output $BUILD/gpu_test --limit LIMIT"
ops="$run$BUILD/tests/gpu/bench_cuda_ops"
bench="$run./megatron_bench --json --device cuda --steps 10 --case"
pytorch="${PYTHON:-python3} scripts/bench/bench_pytorch_gpu.py --rounds 1 --variants compile_autocast --json $rows"
models=(gpt2_124m gpt2_1558m 7b) parity='python3 scripts/gpu_parity.py'
if [[ ${TINY:-0} == 1 ]]; then
  models=(--tiny --tiny --tiny)
  parity+=' --steps 4 --set model.layers=1 --set model.hidden_size=32 --set model.sequence_length=32'
fi

# Step, seconds at most, command. Above all that it works; then how fast it is; then what takes long. A step says less
# the fewer of those before it have passed.
steps="
version      30  $run./megatron_train --version
checks       60  $test --programs test_cuda_checks
device       60  $test --programs test_cuda_device
operations  240  $test --programs test_cuda_ops
nccl         60  $test --programs test_nccl
bench_124m  120  $ops ${models[0]}
training    240  $test --programs test_cuda_training
parity      240  $parity
gpt2_124m   120  $bench gpu_gpt2_124m
gpt2_1558m  120  $bench gpu_gpt2_1558m
7b          120  $bench gpu_7b_4_layers
nccl_two     90  env NCCL_MULTI_RANK_GPU_ENABLE=1 $test --programs test_nccl [two-ranks]
bench_1558m 120  $ops ${models[1]}
bench_7b    120  $ops ${models[2]}
memcheck    300  $test --sanitizer memcheck
racecheck   400  $test --sanitizer racecheck
initcheck   300  $test --sanitizer initcheck
synccheck   300  $test --sanitizer synccheck
pytorch_124m  240  $pytorch --cases gpu_gpt2_124m
pytorch_1558m 300  $pytorch --cases gpu_gpt2_1558m
pytorch_7b    240  $pytorch --cases gpu_7b_4_layers
"

# result_of STEP: its last one; empty if it never began.
result_of() { awk -F'\t' -v step="$1" '$1 == step { result = $2 } END { print result }' "$summary"; }

# end_step STEP RESULT SECONDS WORDS: replaces its line, whole.
end_step() {
  { awk -F'\t' -v step="$1" '$1 != step' "$summary"; printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4"; } >"$summary.new"
  mv "$summary.new" "$summary"
}

# run_step STEP SECONDS WORD...: what it says goes to the log as it says it.
run_step() {
  local name=$1 whole=$(($2 * ${PATIENCE:-1})) limit start=$SECONDS first status result last said keeper i
  limit=$whole
  shift 2
  ((deadline - SECONDS < limit)) && limit=$((deadline - SECONDS))
  set -- "${@/#LIMIT/$((limit > 20 ? limit - 10 : limit))}"
  echo "== $name (at most $limit s): $*" | tee -a "$log"
  first=$(($(wc -l <"$log") + 1))
  end_step "$name" began '' ''
  # Through a process that no step can hold up, and that keeps the log small enough to be brought back.
  exec {said}> >(exec awk -v log_file="$log" '
    { print; fflush() }
    NR <= 4000 { print substr($0, 1, 1000) >> log_file; fflush(log_file) }
    NR == 4001 { print "... the rest was left out" >> log_file; fflush(log_file) }')
  keeper=$!
  timeout -k 5 "$limit" "$@" </dev/null >&"$said" 2>&1
  status=$?
  exec {said}>&-
  for ((i = 0; i < 50; ++i)); do kill -0 "$keeper" 2>/dev/null && sleep 0.1; done
  last=$(tail -n "+$first" "$log" | grep . | tail -n 1 | tr '\t' ' ' | cut -c 1-2000)
  case $status in
    0) result=passed ;;
    77) result=skipped ;;
    124 | 137) if ((limit < whole)); then result='cut short'; else result='out of time'; fi ;;
    *) result="failed ($status)" ;;
  esac
  if [[ $name == version && $result == passed ]] && ! tail -n "+$first" "$log" | grep -E '; [1-9][0-9]* device' >/dev/null; then
    result='failed (no device)'
  fi
  if [[ $result == passed && $last == '{'* ]]; then echo "$last" >>"$rows"; fi
  end_step "$name" "$result" $((SECONDS - start)) "$last"
  echo "== $name: $result, $((SECONDS - start)) s" | tee -a "$log"
}

commit=$(cat commit 2>/dev/null || git rev-parse --short HEAD 2>/dev/null || echo unknown)
device=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
printf '== session\t%s\t%s\t%s\n' "$(date +%F)" "$commit" "${device:-no nvidia-smi}" | tee -a "$log"

bad=0 left=0
while read -r name limit command; do
  [[ -n $name ]] || continue
  result=$(result_of "$name")
  if [[ $result == began ]]; then
    result=lost
    end_step "$name" lost '' 'the session ended while it ran'
  fi
  if [[ ,$again, == *,$name,* || -z $result || $result == 'cut short' ]]; then
    ((deadline - SECONDS > 5)) || { left=$((left + 1)); continue; }
    read -ra words <<<"$command"
    run_step "$name" "$limit" "${words[@]}"
    result=$(result_of "$name")
  fi
  [[ $result == 'cut short' ]] && left=$((left + 1))
  [[ $result == passed || $result == skipped || $result == 'cut short' ]] || bad=$((bad + 1))
done <<<"$steps"

echo "gpu-session: $(awk -F'\t' '$2 == "passed"' "$summary" | wc -l) steps passed, $bad did not, $left are left: $summary"
((bad == 0)) || exit 1
((left == 0)) || exit 3
