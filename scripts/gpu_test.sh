#!/usr/bin/env bash
# Runs the tests of the CUDA backend, each program under a time limit and with a log; after a crash or a hang the tests
# that are left run in a fresh process. What is done so far is on the disk at any time.
#
#   scripts/gpu_test.sh [--output FOLDER] [--limit SECONDS] [--stall SECONDS] [--under "COMMAND ..."] \
#                       [--programs "NAME ..."] [CATCH_ARGUMENT...]
#   scripts/gpu_test.sh --sanitizer memcheck|racecheck|initcheck|synccheck [--limit SECONDS] [--output FOLDER]
#
# --limit: of each program (default: the table below). --stall: of a test that says nothing (90). --under: a command that the programs
# run under. --sanitizer: compute-sanitizer on the tests that its tool is for.
# FOLDER (default: $BUILD/gpu_test): NAME.log with a line as each test starts and one as it ends, and summary.tsv, a line
# per program: name, result, tests that passed, the names of the others.
# From the environment: BUILD (build), the folder that the programs were built in; they need nothing else of it.
# PATIENCE (1), a factor of all limits that are not given here.
# Ends with 0 when all passed, 77 when there is no GPU, 124 when time was all that was lacking, 1 otherwise.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# Seconds that each takes at most; the order is that of what they need of the one before.
declare -A limits=([test_cuda_checks]=60 [test_cuda_device]=60 [test_cuda_ops]=240 [test_nccl]=120 [test_cuda_training]=240)
programs=(test_cuda_checks test_cuda_device test_cuda_ops test_nccl test_cuda_training)

folder=${BUILD:-build}/tests/gpu
output=${BUILD:-build}/gpu_test
limit='' stall=$((90 * ${PATIENCE:-1})) under=() sanitizer='' run=()
[[ -x ./run ]] && run=(./run)  # of a gpu_pack: with its libraries
while (($# > 0)); do
  case $1 in
    --output) output=$2; shift 2 ;;
    --limit) limit=$2; shift 2 ;;
    --stall) stall=$2; shift 2 ;;
    --under) read -ra under <<<"$2"; shift 2 ;;
    --programs) read -ra programs <<<"$2"; shift 2 ;;
    --sanitizer) sanitizer=$2; shift 2 ;;
    *) break ;;
  esac
done

# Each tool on what it can judge in minutes. initcheck follows copies and writes of the device, so it is for the
# training, whose memory no host writes; kernels load lazily, since instrumenting all of them takes longer than a test.
if [[ -n $sanitizer ]]; then
  tool=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer 2>/dev/null) ||
    { echo "gpu-test: no compute-sanitizer on the PATH or in ${CUDA_HOME:-/usr/local/cuda}/bin" >&2; exit 1; }
  under=("$tool" --tool "$sanitizer" --error-exitcode 9 --print-limit 100)
  # Our kernels alone, but for initcheck: what cuBLASLt's kernels write would count as never written.
  if [[ $sanitizer != initcheck ]] && grep -c -- --kernel-regex <<<"$("$tool" --help 2>/dev/null)" >/dev/null; then
    under+=(--kernel-regex kns=megatron)
  fi
  export CUDA_MODULE_LOADING=LAZY
  stall=600
  case $sanitizer in
    memcheck) programs=(test_cuda_ops); set -- "[attention],[experts],[distances]" ;;
    racecheck | synccheck) programs=(test_cuda_ops); set -- "[attention],[experts]" ;;
    initcheck) programs=(test_cuda_training); set -- "one rank trains on the GPU*" ;;
    *) echo "gpu-test: --sanitizer $sanitizer: memcheck, racecheck, initcheck or synccheck" >&2; exit 1 ;;
  esac
fi

mkdir -p "$output" || exit 1
summary=$output/summary.tsv
: >"$summary"
scratch=$(mktemp -d)
child=''
trap 'rm -rf "$scratch"' EXIT
trap '[[ -n $child ]] && kill -KILL -- "-$child" 2>/dev/null; exit 143' TERM INT

# show LOG: prints what came to it since the last call.
shown=0
show() {
  local size
  size=$(stat -c %s "$1")
  ((size > shown)) && tail -c +$((shown + 1)) "$1" | head -c $((size - shown))
  shown=$size
}

# supervise SECONDS LOG COMMAND...: appends what the command says to the log, and prints it. 124: it ran past SECONDS,
# 125: it said nothing for $stall of them, and its whole process group was killed; another status is the command's.
supervise() {
  local seconds=$1 log=$2 start=$SECONDS late=0 status
  shift 2
  touch "$log"
  setsid "$@" >>"$log" 2>&1 </dev/null &
  child=$!
  while kill -0 "$child" 2>/dev/null && ((late == 0)); do
    ((SECONDS - start < seconds)) || late=124
    (($(date +%s) - $(stat -c %Y "$log") < stall)) || late=125
    ((late == 0)) || kill -KILL -- "-$child" 2>/dev/null
    show "$log"
    sleep 0.2
  done
  wait "$child" 2>/dev/null
  status=$?
  child=''
  show "$log"
  return "$((late > 0 ? late : status))"
}

# names_of PROGRAM CATCH_ARGUMENT...: its tests, one per line. Catch2 3 lists them in another way than Catch2 2.
names_of() {
  local names
  names=$(timeout -k 5 60 "$@" --list-test-names-only 2>/dev/null </dev/null)
  [[ -n $names ]] || names=$(timeout -k 5 60 "$@" --list-tests --verbosity quiet 2>/dev/null </dev/null)
  echo "$names"
}

# judge LOG STATUS: a line for the test that a process died in, if there is one.
judge() {
  local last
  last=$(sed -n 's/^RUN  //p' "$1" | tail -n 1)
  [[ -z $last ]] || grep -qxF -e "PASS $last" -e "FAIL $last" -e "CRASH $last" -e "HANG $last" -e "CUT $last" "$1" && return
  case $2 in
    124) echo "CUT $last" ;;
    125) echo "HANG $last" ;;
    *) echo "CRASH $last" ;;
  esac >>"$1"
}

# run_program NAME CATCH_ARGUMENT...: all its tests, in as many processes as they take. Sets result, good and bad.
run_program() {
  local program=$folder/$1 log=$output/$1.log start=$SECONDS seconds=${limit:-$((${limits[$1]:-240} * ${PATIENCE:-1}))} status started=0 before
  shift
  local arguments=("$@")
  result=passed bad=() good=0 shown=0
  : >"$log"
  if [[ ! -x $program ]]; then
    echo "gpu-test: there is no $program; make gpu-test builds it" >&2
    result='not built'
    return
  fi
  while :; do
    before=$started
    supervise $((seconds - (SECONDS - start))) "$log" "${run[@]}" "${under[@]}" "$program" "${arguments[@]}"
    status=$?
    started=$(grep -c '^RUN  ' "$log")
    ((status == 77 && started == 0)) && { result=skipped; return; }
    judge "$log" "$status"
    ((status == 124)) && { result='out of time'; break; }
    ((status != 0 && started > before)) || break  # done, or no test was reached
    names_of "${run[@]}" "$program" "$@" | grep -vxFf <(sed -n 's/^RUN  //p' "$log") >"$scratch/left" || break
    echo "gpu-test: $(wc -l <"$scratch/left") tests are left, for a fresh process" >>"$log"
    sed 's/[][,\\"*~]/\\&/g' "$scratch/left" >"$scratch/names"
    arguments=(--input-file "$scratch/names")
  done
  show "$log"
  good=$(grep -c '^PASS ' "$log")
  mapfile -t bad < <(grep -E '^(FAIL|CRASH|HANG) ' "$log")
  if ((${#bad[@]} > 0)); then
    result=failed
  elif ((good == 0 && (status == 0 || status == 2))) && [[ $result == passed ]]; then  # 2: Catch2 3 found none
    result='no tests'
  elif ((status != 0)) && [[ $result == passed ]]; then
    result="exit code $status"
  fi
}

passed=0 failed=() cut=0
for program in "${programs[@]}"; do
  echo "== $program${under[*]:+ under ${under[*]}}"
  run_program "$program" "$@"
  if [[ $result == skipped ]]; then
    echo "gpu-test: skipped"
    ((${#failed[@]} == 0)) && exit 77
    break
  fi
  printf '%s\t%s\t%s passed' "$program" "$result" "$good" >>"$summary"
  ((${#bad[@]} == 0)) || printf '\t%s' "${bad[@]}" >>"$summary"
  echo >>"$summary"
  if [[ $result == passed ]]; then passed=$((passed + 1)); else failed+=("$program ($result)"); fi
  [[ $result == 'out of time' ]] && cut=$((cut + 1))
done
cut -f 4- "$summary" | tr '\t' '\n' | grep . | sed 's/^/gpu-test: /'
skipped=$(cat "$output"/*.log 2>/dev/null | grep '^skipped: ' | sort -u | paste -sd ';')
echo "$passed passed, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}${skipped:+; $skipped}"
((${#failed[@]} == cut)) || exit 1
((cut == 0)) || exit 124
