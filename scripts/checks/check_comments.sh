#!/usr/bin/env bash
# Checks how comments and test names are written (CONTRIBUTING.md, "How we write"). Usage: check_comments.sh [--self-test]
#
# Prints `file:line: what is wrong` and ends with 1 where the comment at the top of a header has more than 6 lines, a
# comment begins with Of, What, Those or Which instead of a noun or a verb, or the name of a test has more than 70
# characters. --self-test plants one of each in a scratch tree and expects them to be found.
set -euo pipefail

# check ROOT: prints what is wrong below ROOT, ends with 1 if anything is.
check() {
  cd "$1"
  find src cuda tests -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort | xargs awk '
    function report(line, what) { printf "%s:%d: %s\n", FILENAME, line, what; failed = 1 }
    function end_test() {  # test: the text from "TEST_CASE(" on
      name = ""
      sub(/^.*TEST_CASE\([ ]*/, "", test)
      while (match(test, /^[ ]*"([^"\\]|\\.)*"/)) {
        literal = substr(test, 1, RLENGTH)
        test = substr(test, RLENGTH + 1)
        gsub(/^[ ]*"|"$/, "", literal)
        name = name literal
      }
      if (length(name) > 70) report(test_line, "a test name of " length(name) " characters, at most 70")
      test_line = 0
    }
    FNR == 1 { top = 1; comment = 0; test_line = 0; header = FILENAME ~ /\.(h|cuh)$/ }
    {
      if (top && !/^\/\//) {
        if (header && FNR - 1 > 6) report(1, "a header comment of " FNR - 1 " lines, at most 6")
        top = 0
      }
      if (!comment && /^[ ]*\/\/\/?<? +(Of|What|Those|Which)[^A-Za-z]/) report(FNR, "begin the comment with a noun or a verb")
      if (/[^ ].* \/\/\/?<? +([Oo]f|[Ww]hat|[Tt]hose|[Ww]hich)[^A-Za-z]/ && !/^[ ]*\/\//) {
        report(FNR, "begin the comment with a noun or a verb")
      }
      comment = /^[ ]*\/\//
      if (/TEST_CASE\(/) { test = ""; test_line = FNR }
      if (test_line) {
        test = test $0
        if (/\{$/ || /;$/) end_test()
      }
    }
    END { exit failed }'
}

# self_test: a scratch tree with one of each, and lines that must pass.
self_test() {
  local root found expected status=0
  root=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$root'" EXIT
  mkdir -p "$root"/src "$root"/cuda "$root"/tests
  printf '// One\n// two\n// three\n// four\n// five\n// six\n// seven\n\nint a;\n' > "$root/src/long.h"
  printf '// One\n// Of two\n// six\n\n/// Of a thing.\nint a;  ///< what it is\nint b;  ///< name of it\n' > "$root/src/openings.h"
  printf '// Offers a thing.\n// What follows is the second line.\nint c = 1;  // offset\n' > "$root/cuda/good.cu"
  printf 'TEST_CASE("%070d") {\nTEST_CASE("%071d", "[a]") {\nTEST_CASE("%040d"\n          "%040d") {\n' 1 2 3 4 > "$root/tests/names.cpp"
  found=$(check "$root") || status=$?
  expected='src/long.h:1: a header comment of 7 lines, at most 6
src/openings.h:5: begin the comment with a noun or a verb
src/openings.h:6: begin the comment with a noun or a verb
tests/names.cpp:2: a test name of 71 characters, at most 70
tests/names.cpp:3: a test name of 80 characters, at most 70'
  if [[ $found != "$expected" ]] || ((status == 0)); then
    echo "comments: the self-test failed with status $status; expected (<) and found (>):" >&2
    diff <(echo "$expected") <(echo "$found") >&2 || true
    return 1
  fi
  echo "comments: the self-test found every planted fault"
}

case "${1:-}" in
  --self-test) self_test ;;
  "") check "$(cd "$(dirname "$0")/../.." && pwd)" && echo "comments: headers, openings and test names are in order" ;;
  *) echo "usage: scripts/checks/check_comments.sh [--self-test]" >&2; exit 2 ;;
esac
