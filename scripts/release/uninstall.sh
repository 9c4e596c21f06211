#!/usr/bin/env bash
# Removes what the last installation of a build folder has written, and the folders of ours that are empty then.
# Usage: scripts/release/uninstall.sh BUILD/install_manifest.txt     (DESTDIR: as it was for the installation)
set -euo pipefail

manifest=$1
[[ -s $manifest ]] || { echo "uninstall: $manifest is not there: nothing was installed from this build folder" >&2; exit 1; }
folders=()
count=0
while IFS= read -r file || [[ -n $file ]]; do
  file=${DESTDIR:-}$file
  if [[ -e $file || -L $file ]]; then
    rm -f -- "$file"
    count=$((count + 1))
  fi
  folder=$(dirname "$file")
  while [[ $folder == */megatron_train* ]]; do
    folders+=("$folder")
    folder=$(dirname "$folder")
  done
done < "$manifest"
# The deepest first. One that holds a file of the user's stays.
((${#folders[@]} == 0)) || printf '%s\n' "${folders[@]}" | sort -ru | while IFS= read -r folder; do
  rmdir --ignore-fail-on-non-empty -- "$folder" 2> /dev/null || true
done
echo "uninstall: $count files removed"
