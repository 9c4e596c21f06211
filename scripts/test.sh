#!/usr/bin/env bash
# Runs the tests that are built in $BUILD (build). Usage: scripts/test.sh [--all | CTEST_ARGUMENT...], e.g. -R parity
# All but the long ones (tests/CMakeLists.txt labels them), and says so; with arguments, those that these choose.
# Several tests at a time, up to four, where there are cores for them; CTEST_PARALLEL_LEVEL says otherwise.
# The last line is always `N passed, N failed`, after what was skipped, with the reason; ends with 1 when something failed
# or when nothing ran.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# MPI jobs that tests start themselves run under these, wherever they run.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# Most tests wait for ranks and disks as much as they compute; those that take all cores run alone (RUN_SERIAL).
if [[ -z ${CTEST_PARALLEL_LEVEL:-} ]]; then
  cores=$(nproc 2>/dev/null || echo 1)
  export CTEST_PARALLEL_LEVEL=$((cores < 4 ? cores : 4))
fi

left_out=
if (($# == 0)); then
  set -- -LE '^long$'
  left_out=$(ctest --test-dir "${BUILD:-build}" -N -L '^long$' | sed -n 's/^Total Tests: //p')
elif [[ $1 == --all ]]; then
  shift
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
ctest --test-dir "${BUILD:-build}" --output-on-failure "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

# Of passed tests ctest keeps the output in its log alone.
grep -shE '^(skipped|left out): ' "${BUILD:-build}/Testing/Temporary/LastTest.log" | LC_ALL=C sort -u

if ((${left_out:-0} > 0)); then
  echo "left out: $left_out long tests (make test-all): every layout, failures of programs and machines, an emulated GPU"
fi

# ctest's own summary: "93% tests passed, 1 tests failed out of 14". Without it, nothing ran.
passed=0
failed=0
if [[ $(grep -E '^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+' "$log" | tail -n 1) =~ ([0-9]+)\ tests?\ failed\ out\ of\ ([0-9]+) ]]; then
  failed=${BASH_REMATCH[1]}
  passed=$((BASH_REMATCH[2] - failed))
fi
if ((passed + failed == 0)); then
  echo "test: no test ran" >&2
  status=1
fi
((failed > 0 && status == 0)) && status=1
echo "$passed passed, $failed failed"
exit "$status"
