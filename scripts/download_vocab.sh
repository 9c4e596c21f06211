#!/usr/bin/env bash
# Downloads GPT-2's vocabulary (1.5 MB, MIT license). Usage: scripts/download_vocab.sh [FOLDER]   (default: data/gpt2)
# Writes FOLDER/vocab.json and FOLDER/merges.txt, each only once its SHA-256 is right; what is there already stays.
# Needs a network and curl or wget. Elsewhere, copy the two files by hand and run this again: it checks them.
# VOCAB_MIRROR=URL takes URL/vocab.json and URL/merges.txt instead of the public places.
set -euo pipefail

folder=${1:-data/gpt2}

# name, SHA-256, and where it is: at OpenAI under its first name, at Hugging Face under its usual one. The same bytes.
openai=https://openaipublic.blob.core.windows.net/gpt-2/encodings/main
hugging_face=https://huggingface.co/openai-community/gpt2/resolve/main
files=(
  "vocab.json 196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783 $openai/encoder.json $hugging_face/vocab.json"
  "merges.txt 1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5 $openai/vocab.bpe $hugging_face/merges.txt"
)

is_right() { [[ -f $1 && $(sha256sum <"$1") == "$2  -" ]]; }

fetch() {
  if command -v curl >/dev/null; then
    curl --fail --location --silent --show-error --connect-timeout 20 --output "$2" "$1"
  elif command -v wget >/dev/null; then
    wget --quiet --timeout=20 --tries=2 --output-document="$2" "$1"
  else
    echo "download_vocab: neither curl nor wget is installed" >&2
    exit 1
  fi
}

mkdir -p "$folder"
partial=$(mktemp "$folder/.download.XXXXXX")
trap 'rm -f "$partial"' EXIT
for file in "${files[@]}"; do
  read -r name sha256 first second <<<"$file"
  if is_right "$folder/$name" "$sha256"; then
    echo "$folder/$name: already there"
    continue
  fi
  if [[ -e $folder/$name ]]; then
    echo "download_vocab: $folder/$name is there, but is not GPT-2's; remove it or name another folder" >&2
    exit 1
  fi
  places=("$first" "$second")
  [[ -n ${VOCAB_MIRROR:-} ]] && places=("$VOCAB_MIRROR/$name")
  found=0
  for url in "${places[@]}"; do
    if ! fetch "$url" "$partial"; then
      echo "download_vocab: $url cannot be fetched" >&2
    elif ! is_right "$partial" "$sha256"; then
      echo "download_vocab: $url is not the file that is expected (its SHA-256 differs)" >&2
    else
      found=1
      break
    fi
  done
  if ((found == 0)); then
    echo "download_vocab: no $name; copy it from elsewhere to $folder/$name and run this again" >&2
    exit 1
  fi
  chmod 644 "$partial"
  mv "$partial" "$folder/$name"
  echo "$folder/$name: downloaded from $url"
done
echo "use: ./megatron_preprocess ... --tokenizer gpt2 --vocab-file $folder/vocab.json --merge-file $folder/merges.txt"
