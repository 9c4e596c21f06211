#!/usr/bin/env bash
# A try-out of the gallery, a few steps of inputs that need no download, and that it fails and skips where it should.
# Usage: short_gallery.sh PROGRAMS, the folder of the programs
set -euo pipefail
export PROGRAMS=$1
gallery=$(cd "$(dirname "$0")/../.." && pwd)/scripts/gallery.sh
inputs=$(cd "$(dirname "$0")/../../inputs" && pwd)
GALLERY_FOLDER=$(mktemp -d)
export GALLERY_FOLDER GALLERY_MEGABYTES=1
trap 'rm -rf "$GALLERY_FOLDER"' EXIT

expect() {  # WANTED GOT
  [[ $2 == "$1" ]] || { printf 'short_gallery: %s\nwhere this was expected: %s\n' "$2" "$1" >&2; exit 1; }
}
last_line() { tee /dev/stderr | tail -n 1; }

# The text of one is not in the folder that is named instead of a download.
summary=$(GALLERY_STEPS=3 MEGATRON_TEXT=$GALLERY_FOLDER "$gallery" finetune blend layouts wikitext_bpe 2>&1 | last_line)
expect "gallery: 3 passed (finetune blend layouts), 0 failed, 1 skipped (wikitext_bpe)" "$summary"

# A loss, a text or a time that is not the expected one.
for change in 's/^# gallery.loss = .*/# gallery.loss = 0.1 to 0.2/' 's/^# gallery.sample = .*/# gallery.sample = ^no such text$/' \
  's/^# gallery.minutes = .*/# gallery.minutes = 0/'; do
  sed "s/^steps = .*/steps = 2/; s/^every_steps = .*/every_steps = 2/; s/^# gallery.loss = .*/# gallery.loss = 0 to 9/
       s/^# gallery.sample = .*/# gallery.sample = ./; $change" "$inputs/blend.toml" > "$GALLERY_FOLDER/other.toml"
  status=0
  summary=$("$gallery" "$GALLERY_FOLDER/other.toml" 2>&1 | last_line) || status=$?
  expect "gallery: 0 passed, 1 failed (other), 0 skipped" "$summary"
  expect 1 "$status"
done
