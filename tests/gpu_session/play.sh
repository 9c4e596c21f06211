#!/usr/bin/env bash
# Plays a session on a GPU where the GPU is the emulator. Usage: play.sh PLAY MACHINE SOURCE PROGRAMS
# MACHINE: what CMakeLists.txt built; PROGRAMS: the folder of the real ones, which need no GPU.
set -uo pipefail
play=$1 machine=$2 source=$3 programs=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export TINY=1 PATIENCE=10 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_ess_singleton_isolated=1
unset OUT BUILD

fail() {
  printf 'play %s: %s\n' "$play" "$*" >&2
  tail -n 60 out/session.log out/summary.tsv said 2>/dev/null >&2
  exit 1
}
# expect FILE TEXT: a line of the file is this; expect_like: matches this.
expect() { grep -qxF -e "$2" "$1" || fail "$1 lacks the line: $2"; }
expect_like() { grep -qE -e "$2" "$1" || fail "$1 has no line like: $2"; }
result_of() { awk -F'\t' -v step="$1" '$1 == step { print $2 }' out/summary.tsv; }
expect_result() { [[ $(result_of "$1") == "$2" ]] || fail "step $1: $(result_of "$1"), not $2"; }

# As an unpacked gpu_pack. `planted NAME FAULT`: a test program, one of whose tests does that.
cp -r "$machine/build" . && mkdir -p scripts/bench && cp "$source"/scripts/gpu_*.{sh,py} scripts/ &&
  cp "$source"/scripts/bench/{bench_pytorch_gpu,pytorch_gpt}.py scripts/bench/ && cp -r "$source/inputs" . || exit 1
ln -s build/megatron_train . && ln -s "$programs/megatron_preprocess" "$programs/megatron_checkpoint" .
planted() {
  printf '#!/bin/sh\nPLANTED=%s exec "%s/build/tests/gpu/planted" "$@"\n' "$2" "$folder" >"build/tests/gpu/$1"
  chmod +x "build/tests/gpu/$1"
}
# The emulator is too slow for GPT-2: what megatron_bench would print.
# shellcheck disable=SC2016
printf '#!/bin/sh\nfor case; do :; done\necho "{\\"case\\": \\"$case\\", \\"tokens_per_second\\": 500000.0, \\"model_gflops_per_rank\\": 400000.0, \\"step_seconds\\": 0.125}"\n' >megatron_bench
chmod +x megatron_bench

first='planted: the first, which passes'
second='planted: the second, which misbehaves [as "planted"], ~*'
third='planted: the third, which passes'

case $play in
  # Every step on a machine where all is well but what it lacks: PyTorch and compute-sanitizer.
  session)
    [[ -x /usr/bin/python3 ]] || { echo "play session: skipped, no python3"; exit 77; }
    for name in test_cuda_checks test_nccl test_cuda_training; do planted $name nothing; done
    PATH=/usr/bin:/bin CUDA_HOME=$folder/none scripts/gpu_session.sh --output out 5000 >said 2>&1
    (($? == 1)) || fail "a session without compute-sanitizer passed"
    for step in version checks device operations nccl bench_124m training parity gpt2_124m nccl_two; do
      expect_result $step passed
    done
    for step in memcheck racecheck initcheck synccheck; do expect_result $step 'failed (1)'; done
    expect_like out/session.log 'gpu-test: no compute-sanitizer on the PATH'
    expect_like out/session.log 'ok .*fp32, stopped and resumed on the GPU: equal'
    expect_like out/summary.tsv $'^parity\tpassed\t[0-9]+\t4 passed, 0 failed$'
    scripts/gpu_report.py out >report || fail 'no report'
    expect_like report '^\| 20[0-9-]+ \| .*commit unknown \| gpt2_124m \| passed, [0-9]+ s: 500,000 tokens/s, 400.0 TFLOP/s of the model, 125.0 ms per step \|$'
    before=$(cat out/summary.tsv)
    scripts/gpu_session.sh --output out 5000 >said 2>&1
    [[ $(cat out/summary.tsv) == "$before" ]] || fail 'a second call repeated what was done'
    ;;

  # A program that hangs, one that crashes, one that loses the device: named, and the other tests run.
  faults)
    planted test_cuda_checks crash && planted test_cuda_device fail && planted test_cuda_ops abort && planted test_nccl hang &&
      planted test_cuda_training lose
    scripts/gpu_test.sh --output out --stall 20 >said 2>&1
    (($? == 1)) || fail 'passed'
    expect_like said '^0 passed, 5 failed: test_cuda_checks \(failed\) '
    for fault in test_cuda_checks:CRASH test_cuda_device:FAIL test_cuda_ops:FAIL test_nccl:HANG test_cuda_training:FAIL; do
      log=out/${fault%:*}.log
      expect "$log" "PASS $first"
      expect "$log" "RUN  $second"
      expect "$log" "${fault#*:} $second"
      expect "$log" "PASS $third"
      [[ $(grep -c '^RUN ' "$log") == 3 ]] || fail "$log: a test ran twice"
      expect out/summary.tsv "${fault%:*}"$'\tfailed\t2 passed\t'"${fault#*:} $second"
    done
    expect_like out/test_cuda_training.log 'the device is lost: an illegal memory access'
    expect_like out/test_nccl.log '^gpu-test: 1 tests are left, for a fresh process$'
    rm build/tests/gpu/test_cuda_ops
    scripts/gpu_test.sh --output out --programs test_cuda_ops >said 2>&1 && fail 'a program that is not there'
    expect out/summary.tsv $'test_cuda_ops\tnot built\t0 passed'
    # The limit of a whole program, and a test that is asked for alone.
    scripts/gpu_test.sh --output out --limit 15 --programs test_nccl >said 2>&1
    (($? == 124)) || fail 'time that was lacking is no failure of a test'
    expect out/summary.tsv $'test_nccl\tout of time\t1 passed'
    expect out/test_nccl.log "CUT $second"
    scripts/gpu_test.sh --output out --programs test_nccl '[no such tag]' >said 2>&1 && fail 'no tests passed'
    expect out/summary.tsv $'test_nccl\tno tests\t0 passed'
    scripts/gpu_test.sh --output out --programs test_nccl "${third/,/\\,}" >said 2>&1 || fail 'a test alone'
    expect out/summary.tsv $'test_nccl\tpassed\t1 passed'
    # Under a tool that finds something though all tests pass.
    printf '#!/bin/sh\n"$@"\nexit 9\n' >tool && chmod +x tool
    scripts/gpu_test.sh --output out --under ./tool --programs test_nccl "${third/,/\\,}" >said 2>&1 && fail 'the tool was not heard'
    expect out/summary.tsv $'test_nccl\texit code 9\t1 passed'
    ;;

  # The machine goes away in the middle, and the time is used up in the middle: nothing that was known is lost.
  kill)
    command -v python3 >/dev/null || { echo "play kill: skipped, no python3"; exit 77; }
    for name in test_cuda_checks test_cuda_training; do planted $name nothing; done
    planted test_nccl hang
    setsid scripts/gpu_session.sh --output out 5000 >said 2>&1 &
    for ((i = 0; i < 3000; ++i)); do
      grep -qxF "RUN  $second" build/gpu_test/test_nccl.log 2>/dev/null && break
      sleep 0.1
    done
    session=$!
    grep -qxF "RUN  $second" build/gpu_test/test_nccl.log 2>/dev/null || fail 'the test that hangs was not reached'
    pkill -KILL -s "$session"
    pkill -KILL -f "$folder/build/tests/gpu/planted"
    wait 2>/dev/null
    for step in version checks device operations; do expect_result $step passed; done
    expect_result nccl began
    expect out/session.log "RUN  $second"
    [[ -z $(result_of training) ]] || fail 'a step came out of order'
    scripts/gpu_report.py out >report || fail 'no report of a killed session'
    expect_like report '\| nccl \| began: '

    # Little time: the step that hangs is not tried again; the next ones are, as far as the time goes.
    planted test_cuda_training hang
    printf '#!/bin/sh\necho fast\n' >build/tests/gpu/bench_cuda_ops
    scripts/gpu_session.sh --output out 60 >said 2>&1
    (($? == 1)) || fail 'a lost step is no failure'
    expect_result nccl lost
    expect_result training 'cut short'
    expect_like said '^gpu-session: 5 steps passed, 1 did not, [0-9]+ are left: out/summary.tsv$'

    # And what was cut short is repeated.
    planted test_cuda_training nothing && planted test_nccl nothing
    PATH=/usr/bin:/bin CUDA_HOME=$folder/none scripts/gpu_session.sh --output out --again nccl 800 >said 2>&1
    for step in nccl bench_124m training parity bench_7b; do expect_result $step passed; done
    expect_like out/summary.tsv $'^bench_124m\tpassed\t[0-9]+\tfast$'
    ;;

  # No GPU is skipped; a driver of no use is a failure.
  driver)
    MEGATRON_EMULATED_DRIVER=idle scripts/gpu_test.sh --output out --programs test_cuda_device >said 2>&1
    (($? == 77)) || fail 'a machine without a GPU is not skipped'
    expect_like said '^skipped: no GPU is visible \(CUDA 13.0, '
    MEGATRON_EMULATED_DRIVER=old scripts/gpu_test.sh --output out --programs test_cuda_device >said 2>&1
    (($? == 1)) || fail 'a driver that is too old is no failure'
    expect_like said '^failed: the driver is older than the runtime'
    MEGATRON_EMULATED_GPUS=7.5 scripts/gpu_test.sh --output out --programs test_cuda_device >said 2>&1
    (($? == 1)) || fail 'a GPU that is too old is no failure'
    expect_like said '^failed: GPU 0 \(emulated GPU\) has compute capability 7.5'
    ;;

  # The comparison with PyTorch: a row is on the disk before the next case begins, and one that fails ends nothing.
  report)
    command -v python3 >/dev/null || { echo "play report: skipped, no python3"; exit 77; }
    cat >drive.py <<'PYTHON'
import json, os, sys
sys.path.insert(0, "scripts/bench")
import bench_pytorch_gpu as bench

def pytorch(case, variant, steps):
    if variant == "autocast":
        return None
    if case == "gpu_7b_4_layers":
        os._exit(9)
    return dict(seconds=[0.25] * steps, peak=1 << 30, torch="2.9", device="a GPU")

bench.run_pytorch = pytorch
sys.argv = ["bench", "--variants", "autocast,compile_autocast", "--json", "out/rows.jsonl"]
bench.main()
PYTHON
    mkdir out
    MEGATRON_BENCH=./megatron_bench python3 drive.py >said 2>&1
    (($? == 9)) || fail 'the driver did not end as planted'
    [[ $(wc -l <out/rows.jsonl) == 2 ]] || fail 'not the two rows that were known'
    expect_like said '^gpu_gpt2_1558m +[0-9]+ .*compile_autocast$'
    printf 'version\tpassed\t1\tfine | dandy\n' >out/summary.tsv
    printf '== session\t2026-11-25\tabc\tH100\nCUDA 13.0, driver 580.1\n' >out/session.log
    scripts/gpu_report.py out >report || fail 'no report'
    expect report '| 2026-11-25 | H100, CUDA 13.0, driver 580.1, commit abc | version | passed, 1 s: fine \| dandy |'
    expect_like report 'gpu_gpt2_124m against PyTorch 2.9, compile_autocast \| 524,288 against 262,144 tokens/s, ratio 2.00; '
    ;;
esac
echo "play $play: as expected"
