#!/usr/bin/env bash
# Checks that headers (*.h) of src/, cuda/ and tests/ compile alone. Usage: scripts/checks/check_headers.sh [--all | --self-test]
#
# Prints `file: does not compile alone: the compiler's first error` for each that does not and ends with 1 if there is one.
# Compiles $JOBS at a time. A header whose source file includes it first is left to the build, which compiles such files one by one
# with -DMEGATRON_UNITY=OFF; with --all it is compiled here, too, after the build's precompiled headers (ten minutes on two
# cores). $BUILD/headers remembers those that passed, until the header, a file that it includes or the compiler changes.
# Device code (*.cuh) belongs to nvcc and tests/emulated_cuda.
# --self-test plants such headers in a scratch tree and expects to be told of them.
set -euo pipefail

export CXX=${CXX:-c++} all=0 mpi
mpi=$(mpicxx --showme:compile 2>/dev/null || mpicxx -compile_info 2>/dev/null | cut -d' ' -f2- || true)
lists=$(realpath "$(dirname "$0")/../../CMakeLists.txt")

# left_to_the_build HEADER: whether the first include of its .cpp or .cu is the header itself. Kernels are never joined.
left_to_the_build() {
  local source first
  ((all)) && [[ $1 != src/backend/cpu/* && $1 != cuda/* ]] && return 1
  for source in "${1%.h}.cpp" "${1%.h}.cu"; do
    [[ -f $source ]] || continue
    first=$(grep -m 1 '^#include' "$source" | sed 's/^[^"<]*["<]\([^">]*\).*/\1/')
    [[ $1 == */"$first" || $1 == "$first" ]] && return 0
  done
  return 1
}

# compile_alone HEADER: prints what is wrong. $passed/HEADER has the sums of all files that were compiled.
compile_alone() {
  local sums=$passed/${1//\//,} errors first=()
  [[ -s $sums ]] && sha256sum --check --status "$sums" 2>/dev/null && return
  ((all)) && [[ -f ${1%.h}.cpp && $1 != src/base/core/* && $1 != src/backend/cpu/* ]] && first=(-include "$passed/common.h")
  # shellcheck disable=SC2086
  if ! errors=$("$CXX" -std=c++20 -fsyntax-only -w "${first[@]}" $mpi -Isrc -I. -Itests '-DMEGATRON_SOURCE=""' '-DMEGATRON_GOLDEN_FOLDER=""' \
                -MMD -MT sums -MF "$sums.d" -x c++ - <<<"#include \"$1\"" 2>&1); then
    echo "$1: does not compile alone: $(grep -m 1 -E 'error' <<<"$errors" || head -n 1 <<<"$errors")"
    return
  fi
  # shellcheck disable=SC2046
  sha256sum $(sed 's/^sums://; s/\\$//' "$sums.d" | tr ' ' '\n' | grep '\.h' | grep -v '\.gch$') >"$sums"
}
export -f compile_alone

# precompile FILE: the includes that CMakeLists.txt names as common_headers.
precompile() {
  sed -n '/^set(common_headers/,/)/p' "$lists" | grep -o '<[^>]*>' | sed 's/^/#include /' >"$1.new"
  cmp -s "$1.new" "$1" && [[ -s $1.gch ]] && return
  mv "$1.new" "$1"
  # shellcheck disable=SC2086
  "$CXX" -std=c++20 -w $mpi -x c++-header "$1" -o "$1.gch"
}

# check ROOT FOLDER: remembers in FOLDER; prints the headers below ROOT that do not compile alone, ends with 1 if there
# are any.
check() {
  local header found
  export passed
  passed=$(realpath -m "$2/$("$CXX" --version | head -n 1 | tr -c 'A-Za-z0-9.\n' '_')")
  mkdir -p "$passed"
  cd "$1"
  if ((all)); then precompile "$passed/common.h"; fi
  found=$(find src cuda tests -type f -name '*.h' 2>/dev/null | LC_ALL=C sort | while IFS= read -r header; do
    left_to_the_build "$header" || printf '%s\0' "$header"
  done | xargs -0 -r -n 1 -P "${JOBS:-$(nproc)}" bash -c 'compile_alone "$1"' -)
  [[ -z $found ]] || { LC_ALL=C sort <<<"$found"; return 1; }
}

# planted ROOT: the headers that a check of the scratch tree finds.
planted() {
  (check "$1" "$1/passed") | cut -d: -f1,2 | tr '\n' ';' || true
}

self_test() {
  local root found
  root=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$root'" EXIT
  mkdir -p "$root"/src/base "$root"/src/backend/cpu "$root"/tests/support
  printf '#pragma once\n#include <string>\ninline std::string name;\n' >"$root/src/base/name.h"
  printf '#pragma once\n#include "base/name.h"\ninline std::string other = name;\n' >"$root/src/base/through.h"
  printf '#pragma once\nstd::deque<int> late();\n' >"$root/src/base/late.h"
  printf '#include <deque>\n#include "base/late.h"\n' >"$root/src/base/late.cpp"
  printf '#pragma once\nstd::deque<int> joined();\n' >"$root/src/base/first.h"
  printf '// Comment.\n#include "base/first.h"\n' >"$root/src/base/first.cpp"
  printf '#pragma once\nstd::string left_to_the_build();\n' >"$root/src/backend/cpu/first.h"
  printf '// Comment.\n#include "backend/cpu/first.h"\n' >"$root/src/backend/cpu/first.cpp"
  printf '#pragma once\nstd::string lacking();\n' >"$root/tests/support/lacking.h"
  found=$(planted "$root")
  sed -i 's/inline std::string name;/inline int name;/' "$root/src/base/name.h"  # which through.h cannot be made of
  found+=$(planted "$root")
  all=1
  found+=$(planted "$root")
  local wrong=': does not compile alone;'
  local expected="src/base/late.h${wrong}tests/support/lacking.h$wrong"
  expected+="src/base/late.h${wrong}src/base/through.h${wrong}tests/support/lacking.h$wrong"
  expected+="src/base/first.h${wrong}src/base/late.h${wrong}src/base/through.h${wrong}tests/support/lacking.h$wrong"
  if [[ $found != "$expected" ]]; then
    echo "headers: the self-test failed; expected (<) and found (>):" >&2
    diff <(tr ';' '\n' <<<"$expected") <(tr ';' '\n' <<<"$found") >&2 || true
    return 1
  fi
  echo "headers: the self-test found every planted header"
}

case "${1:-}" in
  --self-test) self_test; exit ;;
  --all) all=1 ;;
  "") ;;
  *) echo "usage: scripts/checks/check_headers.sh [--all | --self-test]" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/../.."
check "$PWD" "${BUILD:-build}/headers" && echo "headers: each compiles alone"
