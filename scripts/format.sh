#!/usr/bin/env bash
# clang-format over all C++ sources, by .clang-format. Usage: scripts/format.sh [--check]
# --check changes nothing, names the first line of each file that differs, and ends with 1 if there are any.
set -euo pipefail
cd "$(dirname "$0")/.."

# Other versions break lines differently: 14 (Debian 12's) is the one that counts.
formatter=$(command -v clang-format-14 || command -v clang-format || true)
if [[ -z $formatter ]]; then
  echo "format: clang-format is not installed (Debian: apt-get install clang-format)" >&2
  exit 1
fi
version=$("$formatter" --version | grep -oE '[0-9]+\.[0-9]+' | head -n 1)
if [[ ${version%%.*} != 14 ]]; then
  echo "format: this is clang-format $version; the project is formatted with 14, small differences are to be expected" >&2
fi

mapfile -d '' files < <(find src cuda tests -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0)
if [[ ${1:-} == --check ]]; then
  differing=$("$formatter" --dry-run "${files[@]}" 2>&1 | grep -E '^[^ ]+:[0-9]+:[0-9]+: ' | sort -t: -k1,1 -k2,2n | sort -t: -u -k1,1 || true)
  if [[ -n $differing ]]; then
    sed 's/: warning:.*/: not formatted/' <<<"$differing"
    echo "format: run \`make format\`" >&2
    exit 1
  fi
  echo "format: ${#files[@]} files are in order"
else
  "$formatter" -i "${files[@]}"
fi
