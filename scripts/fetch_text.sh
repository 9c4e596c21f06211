#!/usr/bin/env bash
# Fetches a text that the gallery trains on, by name. Usage: scripts/fetch_text.sh [NAME...]   (without: lists them)
# Writes data/text/FILE below the current directory, only once its SHA-256 is right; a file that is there stays.
# MEGATRON_TEXT=FOLDER takes FOLDER/FILE instead of downloading. Ends with 1 if a text is not to be had, and says which
# file to put where.
set -euo pipefail

# name, file, SHA-256, what it is, where it is
texts=(
  "shakespeare|shakespeare.txt|86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed|40,000 lines of Shakespeare (tiny Shakespeare), 1.1 MB, public domain|https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
  "wikitext2|wikitext2_valid.txt|f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8|the validation part of WikiText-2, 1.1 MB, CC BY-SA|https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/valid.txt"
)
folder=data/text

is_right() { [[ -f $1 && $(sha256sum < "$1") == "$2  -" ]]; }

download() {  # URL FILE
  if command -v curl > /dev/null; then
    curl --fail --location --silent --show-error --connect-timeout 20 --max-time 300 --output "$2" "$1"
  elif command -v wget > /dev/null; then
    wget --quiet --timeout=20 --tries=2 --output-document="$2" "$1"
  else
    echo "fetch_text: neither curl nor wget is installed" >&2
    return 1
  fi
}

fetch() {  # NAME
  local name file sum what public url partial
  for text in "${texts[@]}"; do
    IFS='|' read -r name file sum what public <<< "$text"
    [[ $name == "$1" ]] && break
    name=
  done
  [[ -n $name ]] || { echo "fetch_text: no text '$1'; there are: $(names)" >&2; return 1; }
  if is_right "$folder/$file" "$sum"; then
    echo "$folder/$file: already there"
    return
  fi
  mkdir -p "$folder"
  partial=$(mktemp "$folder/.fetch.XXXXXX")
  url=${MEGATRON_TEXT:+$MEGATRON_TEXT/$file}
  if [[ -n $url ]]; then
    cp "$url" "$partial" || url=
  else
    url=$public
    download "$url" "$partial" || url=
  fi
  if [[ -z $url ]] || ! is_right "$partial" "$sum"; then
    rm -f "$partial"
    [[ -z $url ]] || echo "fetch_text: $url is not the file that is expected (its SHA-256 differs)" >&2
    echo "fetch_text: no text '$name' ($what). Download $public elsewhere, copy it to $PWD/$folder/$file, and run" \
      "this again. MEGATRON_TEXT=FOLDER takes FOLDER/$file instead." >&2
    return 1
  fi
  chmod 644 "$partial"
  mv "$partial" "$folder/$file"
  echo "$folder/$file: from $url"
}

names() { printf '%s\n' "${texts[@]%%|*}" | paste -sd ' '; }

if (($# == 0)); then
  for text in "${texts[@]}"; do
    IFS='|' read -r name file _ what _ <<< "$text"
    echo "$name: $what ($folder/$file)"
  done
fi
status=0
for wanted in "$@"; do fetch "$wanted" || status=1; done
exit "$status"
