#!/usr/bin/env bash
# Keeps phrases out that CONTRIBUTING.md ("How we write") replaces. Usage: scripts/checks/check_words.sh [--self-test]
#
# Prints `file:line: "phrase": what to write instead` for every occurrence and ends with 1 if there is one. It reads the
# text files below src, cuda, scripts, tests, slurm, inputs and docs and those at the top, except stored data of tests,
# the two files that have to name the phrases, and two that hold stories. A phrase that spans two lines is not found.
# --self-test plants every phrase in a scratch tree and expects all of them to be found.
set -euo pipefail

# One per line: an extended regular expression (whole words, any case), a tab, what to write instead.
units='bytes|[KMGT]i?B|threads|samples|tokens|messages|ranks|cores|elements|parameters|TFLOP'
things='rank|step|node|layer|parameter|token|core|micro-batch|sample|process|stage|GPU|document|thread|element|update|pass'
phrases="whoever	name them: the caller, the ranks that ...
somebody	name them, or use the passive
(nobody|everybody)('s)?	no rank, all ranks, ... or the passive
(every|after|of|with|within|first|on|has|at least) so (many|often)	name the number: every N steps, this number of ...
levers?	option
beside	next to, besides, alongside, in the background
(go|goes|going|went|gone) on	continue, resume
one behind the other	one after the other
($units) an? ($things)	per rank, per step, ..."

# check ROOT: prints the occurrences below ROOT, ends with 1 if there are any.
check() {
  local root=$1 pattern advice found=0 line
  while IFS=$'\t' read -r pattern advice; do
    while IFS= read -r line; do
      printf '%s: "%s": %s\n' "${line%:*}" "${line##*:}" "$advice"
      found=1
    done < <(cd "$root" && grep -rIEinow --exclude-dir=corpus --exclude-dir=golden --exclude=check_words.sh \
      --exclude=CONTRIBUTING.md --exclude=sample_corpus.cpp --exclude=make_evaluation_golden.py -- "$pattern" src cuda scripts tests slurm inputs docs ./*.md Makefile CMakeLists.txt \
      2> /dev/null || true)
  done <<< "$phrases"
  return "$found"
}

# self_test: a scratch tree with each phrase once, and sentences that must pass.
self_test() {
  local root found expected status=0
  root=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$root'" EXIT
  mkdir -p "$root"/src/base "$root"/docs "$root"/tests/golden
  printf '// Whoever calls this.\n// For somebody.\n// A lever and two levers.\n// Nobody but everybody.\n// Every so many steps.\n' > "$root/src/base/words.h"
  printf 'Saves run beside it and go on.\n\nIt takes 12 bytes a parameter, 3 GiB a rank.\n' > "$root/docs/page.md"
  printf 'one behind the other\n' > "$root/Makefile"
  printf 'whoever\n' > "$root/tests/golden/stored.txt"
  printf '// Besides a clever rank, so many that it is slow: bytes per rank, going only, each of them a sample.\n' > "$root/src/base/good.h"
  found=$(check "$root") || status=$?
  found=$(cut -d: -f1-3 <<< "$found" | LC_ALL=C sort)
  expected='Makefile:1: "one behind the other"
docs/page.md:1: "beside"
docs/page.md:1: "go on"
docs/page.md:3: "GiB a rank"
docs/page.md:3: "bytes a parameter"
src/base/words.h:1: "Whoever"
src/base/words.h:2: "somebody"
src/base/words.h:3: "lever"
src/base/words.h:3: "levers"
src/base/words.h:4: "Nobody"
src/base/words.h:4: "everybody"
src/base/words.h:5: "Every so many"'
  if [[ $found != "$expected" ]] || ((status != 1)); then
    echo "words: the self-test failed with status $status; expected (<) and found (>):" >&2
    diff <(echo "$expected") <(echo "$found") >&2 || true
    return 1
  fi
  echo "words: the self-test found every planted phrase"
}

case "${1:-}" in
  --self-test) self_test ;;
  "") check "$(cd "$(dirname "$0")/../.." && pwd)" && echo "words: none of the phrases to avoid" ;;
  *) echo "usage: scripts/checks/check_words.sh [--self-test]" >&2; exit 2 ;;
esac
