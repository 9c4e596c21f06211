#!/usr/bin/env bash
# Looks for inputs that break the readers of tests/fuzz: libFuzzer with the address and undefined-behaviour sanitizers.
# Usage: scripts/fuzz.sh [SECONDS | EXECUTIONSx | stored] [TARGET...]      (60 seconds for each of all targets)
#
# 5000x instead of seconds makes 5000 executions. `stored` searches nothing: it runs each stored input once, the same on
# every machine, as CI needs it.
#
# Builds into $BUILD (build-fuzz) with Clang, which is installed where it is missing. What a run learns stays there, in
# corpus/TARGET, and is where the next one begins; the stored inputs of tests/fuzz/corpus are always part of it. A
# finding ends the run of its target and this script with 1, and is left as $BUILD/finding-TARGET-*: fix it, then put
# the file into tests/fuzz/corpus/TARGET, where an ordinary test replays it from then on. Ends with 77 where Clang or its
# libFuzzer cannot be had. JOBS: targets at a time.
set -euo pipefail
cd "$(dirname "$0")/.."

limit=${1:-60}
shift $(($# > 0 ? 1 : 0))
case $limit in
  stored) limit="-runs=0" ;;
  *[!0-9]*x | 0* | x) limit= ;;
  *x) limit="-runs=${limit%x}" ;;
  *[!0-9]*) limit= ;;
  *) limit="-max_total_time=$limit" ;;
esac
[[ -n $limit ]] || { echo "fuzz: expected a number of seconds (60), of executions (5000x), or stored" >&2; exit 1; }
export BUILD=${BUILD:-build-fuzz} limit
export kTimeout=70  # libFuzzer's exit code where an input took too long

cannot() { echo "fuzz: skipped, $1" >&2; exit 77; }
scripts/setup.sh clang || cannot "Clang could not be installed"
command -v clang++ >/dev/null || cannot "there is no clang++"
# Debian and Ubuntu keep libFuzzer in a package of the compiler's version.
major=$(clang++ -dumpversion | cut -d. -f1)
if command -v apt-cache >/dev/null && apt-cache show "libclang-rt-$major-dev" >/dev/null 2>&1; then
  scripts/setup.sh "libclang-rt-$major-dev" || cannot "libFuzzer could not be installed"
fi
if [[ ! -f $BUILD/CMakeCache.txt ]]; then
  # Each file alone and without precompiled headers: shows includes that readers lack.
  export CC=clang CXX=clang++
  export CMAKE_FLAGS="-DMEGATRON_FUZZ=ON -DMEGATRON_UNITY=OFF -DMEGATRON_PRECOMPILED_HEADERS=OFF ${CMAKE_FLAGS:-}"
fi
scripts/build.sh fuzz >"$BUILD.log" 2>&1 || { tail -n 40 "$BUILD.log" >&2; exit 1; }
rm -f "$BUILD.log"

targets=("$@")
if ((${#targets[@]} == 0)); then
  for source in tests/fuzz/corpus/*/; do targets+=("$(basename "$source")"); done
fi

# Runs a target once on each of its findings and removes those that are none any more. What is left is one.
repeat_findings() {
  local finding left=0
  for finding in "$BUILD/finding-$1-"*; do
    [[ -f $finding ]] || continue
    if "$BUILD/tests/fuzz/fuzz_$1" -timeout=10 "$finding" >"$BUILD/fuzz_$1.log" 2>&1; then rm "$finding"; else left=1; fi
  done
  return $left
}

# One target: its log, then a line of numbers, or the end of the log.
fuzz_one() {
  local target=$1 log="$BUILD/fuzz_$1.log" status=0 longest=4096
  [[ $target == shard_file || $target == rank_file ]] && longest=16384
  mkdir -p "$BUILD/corpus/$target"
  if repeat_findings "$target"; then
    # shellcheck disable=SC2086  # one option or two
    "$BUILD/tests/fuzz/fuzz_$target" -max_len=$longest $limit -timeout=10 \
      -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$BUILD/finding-$target-" \
      "$BUILD/corpus/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1 || status=$?
    # An input that took long and no longer does: the machine stood still, not the program.
    ((status == kTimeout)) && cp "$log" "$log.kept" && repeat_findings "$target" && mv "$log.kept" "$log" && status=0
  else
    status=1
  fi
  if ((status != 0)); then
    tail -n 60 "$log" >&2
    echo "fuzz: $target: FOUND something ($BUILD/finding-$target-*, $log)" >&2
    return 1
  fi
  awk -v target="$target" '
    /^#[0-9]+.* cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") coverage = $(i + 1) }
    /^stat::number_of_executed_units:/ { executions = $2 }
    /^stat::peak_rss_mb:/ { memory = $2 }
    END { printf "fuzz: %-16s %10d executions, %6d edges covered, %5d MiB, nothing found\n", target, executions,
          coverage, memory }' "$log"
}
export -f fuzz_one repeat_findings

printf '%s\n' "${targets[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'fuzz_one {}' || exit 1
