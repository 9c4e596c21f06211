#!/usr/bin/env bash
# Checks that README.md and the tests agree: every row's files have test cases tagged with its number, every tag has a
# row that names its file. Usage: tests/faults/check_list.sh
set -euo pipefail
cd "$(dirname "$0")/.."

tags=$(grep -rno --include='*.cpp' '\[fault-[0-9]*\]' . | sed -E 's|^\./([^:]*):[0-9]*:\[fault-([0-9]+)\]|\2 \1|' | sort -u)
rows=$(awk -F'|' '$2 ~ /^ *[0-9]+ *$/ { n = $2 + 0; text = $4
                    while (match(text, /`[a-z0-9_\/]+\.cpp`/)) {
                      print n, substr(text, RSTART + 1, RLENGTH - 2); text = substr(text, RSTART + RLENGTH) } }' \
       faults/README.md | sort -u)
[[ $tags == "$rows" ]] && { echo "$(cut -d' ' -f1 <<< "$rows" | sort -u | wc -l) faults, each with its tests"; exit 0; }
echo "tests/faults/README.md (<) and the tags of the test cases (>) differ:"
diff <(echo "$rows") <(echo "$tags") || true
exit 1
