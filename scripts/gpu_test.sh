#!/usr/bin/env bash
# Runs the tests that need a GPU, then those of the operations once more under compute-sanitizer where that is found:
# memory accesses, races on shared memory, reads of memory that was never written, barriers that some threads miss.
# Usage: scripts/gpu_test.sh [CATCH_ARGUMENT...], e.g. "matmul*"
# From the environment: BUILD (build), the folder that they were built in; they need nothing else of it.
# Ends with 0 when all passed, 77 when there is no GPU, 1 otherwise.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

folder=${BUILD:-build}/tests/gpu
passed=0
failed=()

run() {
  local name=$1 code
  shift
  echo "== $name"
  "$@"
  code=$?
  ((code == 77)) && { echo "gpu-test: skipped"; exit 77; }
  if ((code == 0)); then passed=$((passed + 1)); else failed+=("$name"); fi
}

for program in "$folder"/test_*; do
  [[ -x $program && -f $program ]] || continue
  run "$(basename "$program")" "$program" "$@"
done
((passed + ${#failed[@]} > 0)) || { echo "gpu-test: no tests in $folder; make gpu-test builds them" >&2; exit 1; }

sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer 2>/dev/null)
if [[ -n $sanitizer ]]; then
  for tool in memcheck racecheck initcheck synccheck; do
    run "test_cuda_ops under $tool" "$sanitizer" --tool "$tool" --error-exitcode 9 "$folder/test_cuda_ops" "$@"
  done
else
  echo "gpu-test: no compute-sanitizer on the PATH: memory accesses, races and barriers were not checked"
fi

echo "$passed passed, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}"
((${#failed[@]} == 0))
