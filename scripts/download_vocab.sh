#!/usr/bin/env bash
# Downloads a published vocabulary. Usage: scripts/download_vocab.sh [gpt2|bert-uncased|bert-cased] [FOLDER]
# (default: gpt2, and the folder data/NAME). Writes FOLDER/vocab.json and FOLDER/merges.txt (GPT-2's, 1.5 MB, MIT license)
# or FOLDER/vocab.txt (BERT's, 0.2 MB, Apache 2 license), each only once its SHA-256 is right; what is there already stays.
# Needs a network and curl or wget. Elsewhere, copy the files by hand and run this again: it checks them.
# VOCAB_MIRROR=URL takes URL/vocab.json and so on instead of the public places.
set -euo pipefail
. "$(dirname "$0")/fetch_url.sh"

name=gpt2
case ${1:-} in
  gpt2 | bert-uncased | bert-cased) name=$1 && shift ;;
  gpt* | bert*)
    echo "download_vocab: no vocabulary $1: gpt2, bert-uncased or bert-cased; a folder of that name is ./$1" >&2
    exit 2 ;;
esac
folder=${1:-data/$name}

# file, SHA-256, and where it is: GPT-2's at OpenAI under its first name, at Hugging Face under its usual one. The same bytes.
openai=https://openaipublic.blob.core.windows.net/gpt-2/encodings/main
hugging_face=https://huggingface.co
bert=https://s3.amazonaws.com/models.huggingface.co/bert
case $name in
  gpt2)
    whose=GPT-2
    files=(
      "vocab.json 196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783 $openai/encoder.json $hugging_face/openai-community/gpt2/resolve/main/vocab.json"
      "merges.txt 1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5 $openai/vocab.bpe $hugging_face/openai-community/gpt2/resolve/main/merges.txt"
    )
    use="--tokenizer gpt2 --vocab-file $folder/vocab.json --merge-file $folder/merges.txt" ;;
  bert-uncased)
    whose="the uncased BERT"
    files=("vocab.txt 07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3 $bert/bert-large-uncased-vocab.txt $hugging_face/google-bert/bert-large-uncased/resolve/main/vocab.txt")
    use="--tokenizer bert-uncased --vocab-file $folder/vocab.txt --split-sentences" ;;
  bert-cased)
    whose="the cased BERT"
    files=("vocab.txt eeaa9875b23b04b4c54ef759d03db9d1ba1554838f8fb26c5d96fa551df93d02 $bert/bert-large-cased-vocab.txt $hugging_face/google-bert/bert-large-cased/resolve/main/vocab.txt")
    use="--tokenizer bert-cased --vocab-file $folder/vocab.txt --split-sentences" ;;
esac

is_right() { [[ -f $1 && $(sha256sum <"$1") == "$2  -" ]]; }

mkdir -p "$folder"
partial=$(mktemp "$folder/.download.XXXXXX")
trap 'rm -f "$partial"' EXIT
for file in "${files[@]}"; do
  read -r file sha256 first second <<<"$file"
  if is_right "$folder/$file" "$sha256"; then
    echo "$folder/$file: already there"
    continue
  fi
  if [[ -e $folder/$file ]]; then
    echo "download_vocab: $folder/$file is there, but is not $whose's; remove it or name another folder" >&2
    exit 1
  fi
  places=("$first" "$second")
  [[ -n ${VOCAB_MIRROR:-} ]] && places=("$VOCAB_MIRROR/$file")
  found=0
  for url in "${places[@]}"; do
    rm -f "$partial"
    if ! fetch_url "$url" "$partial"; then
      echo "download_vocab: $url cannot be fetched" >&2
    elif ! is_right "$partial" "$sha256"; then
      echo "download_vocab: $url is not the file that is expected (its SHA-256 differs)" >&2
    else
      found=1
      break
    fi
  done
  if ((found == 0)); then
    echo "download_vocab: no $file; copy it from elsewhere to $folder/$file and run this again" >&2
    exit 1
  fi
  chmod 644 "$partial"
  mv "$partial" "$folder/$file"
  echo "$folder/$file: downloaded from $url"
done
echo "use: ./megatron_preprocess ... $use"
