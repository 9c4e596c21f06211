#!/usr/bin/env bash
# The scripts that download, without a network: with a curl or a wget that copies files out of a folder, that finds
# nothing, or that is cut off. Usage: test_downloads.sh SOURCE_FOLDER. Needs python3 (exit 77, "skipped", without it).
set -euo pipefail
source=$(cd "$1" && pwd)
command -v python3 >/dev/null || { echo "python3 is not installed: skipped"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

fail() { echo "FAILED: $*"; cat log; exit 1; }
run() {  # EXIT-CODE COMMAND...
  local expected=$1 code=0
  shift
  "$@" >log 2>&1 || code=$?
  ((code == expected)) || fail "$* ended with $code, not $expected"
}
says() { grep -qF -- "$1" log || fail "nothing says: $1"; }

# Programs of the machine without those that download or unpack, and ours, which know the files of ./net by the end of
# an address; `cut` gives half of a file and fails.
mkdir bin net
for program in bash basename cat chmod cp dirname grep head mkdir mktemp mv rm sed sha256sum touch; do
  ln -s "$(command -v "$program")" "bin/$program"
done
real=$(python3 -c 'import sys; print(sys.executable)')
printf '#!/bin/bash\nexec "%s" "$@"\n' "$real" >bin/python3
chmod +x bin/python3
cat >fetch.py <<'PYTHON'
import os, sys
words = sys.argv[1:]
url = words[-1]
target = next((w.split("=", 1)[1] for w in words if w.startswith("--output-document=")), None)
target = target or words[words.index("--output") + 1]
path = "net/" + url.split("//", 1)[1].replace("/", "_")
if not os.path.exists(path):
    sys.exit(22)
content = open(path, "rb").read()
done = os.path.getsize(target) if os.path.exists(target) else 0
end = len(content) // 2 if os.path.exists("cut") and done == 0 else len(content)
continues = "--continue-at" in words or "--continue" in words
if os.path.exists("whole") and continues and done > 0:
    sys.exit(33)  # a server that gives whole files only
done = done if continues else 0
with open(target, "ab" if continues else "wb") as file:
    file.write(content[done:end])
sys.exit(18 if end < len(content) else 0)
PYTHON
PATH=$scratch/bin
export PATH
downloader() {  # curl, wget or none
  rm -f bin/curl bin/wget
  [[ $1 == none ]] || { printf '#!/bin/bash\nexec python3 fetch.py "$@"\n' >"bin/$1"; chmod +x "bin/$1"; }
}
place() { cp "$1" "net/$(sed 's|^[a-z]*://||; s|/|_|g' <<<"$2")"; }

# --- vocabularies: the scripts' sums are those of the real files, so copies of them have those of ours -----------------
for kind in vocab.json merges.txt uncased cased; do echo "the $kind" >"$kind"; done
sum() { sha256sum <"$1" | head -c 64; }
mkdir scripts
cp "$source/scripts/fetch_url.sh" "$source/scripts/download_checkpoint.sh" scripts
sed -e "s/196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783/$(sum vocab.json)/" \
  -e "s/1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5/$(sum merges.txt)/" \
  -e "s/07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3/$(sum uncased)/" \
  -e "s/eeaa9875b23b04b4c54ef759d03db9d1ba1554838f8fb26c5d96fa551df93d02/$(sum cased)/" \
  "$source/scripts/download_vocab.sh" >scripts/download_vocab.sh
vocab() { bash scripts/download_vocab.sh "$@"; }

downloader none
run 1 vocab
says "download_vocab: neither curl nor wget is installed"
downloader curl
run 1 vocab bert-uncased
says "bert-large-uncased-vocab.txt cannot be fetched"
says "download_vocab: no vocab.txt; copy it from elsewhere to data/bert-uncased/vocab.txt and run this again"
place cased https://s3.amazonaws.com/models.huggingface.co/bert/bert-large-uncased-vocab.txt  # the wrong one
place uncased https://huggingface.co/google-bert/bert-large-uncased/resolve/main/vocab.txt
run 0 vocab bert-uncased
says "bert-large-uncased-vocab.txt is not the file that is expected (its SHA-256 differs)"
says "data/bert-uncased/vocab.txt: downloaded from https://huggingface.co"
says "use: ./megatron_preprocess ... --tokenizer bert-uncased --vocab-file data/bert-uncased/vocab.txt"
run 0 vocab bert-uncased
says "already there"
mkdir -p data/bert-cased
cp uncased data/bert-cased/vocab.txt
run 1 vocab bert-cased
says "data/bert-cased/vocab.txt is there, but is not the cased BERT's"
run 2 vocab bert  # a misspelt name is no folder
says "download_vocab: no vocabulary bert: gpt2, bert-uncased or bert-cased"
downloader wget
place cased https://mirror/vocab.txt
VOCAB_MIRROR=https://mirror run 0 vocab bert-cased elsewhere
grep -q "the cased" elsewhere/vocab.txt || fail "another file"
place vocab.json https://mirror/vocab.json
place merges.txt https://mirror/merges.txt
VOCAB_MIRROR=https://mirror run 0 vocab words  # a folder alone is GPT-2's
says "use: ./megatron_preprocess ... --tokenizer gpt2 --vocab-file words/vocab.json --merge-file words/merges.txt"
[[ $(echo words/.[!.]*) == "words/.[!.]*" ]] || fail "a temporary file is left"

# --- checkpoints -------------------------------------------------------------------------------------------------------
mkdir -p release/mp_rank_00
head -c 100000 fetch.py >release/mp_rank_00/model_optim_rng.pt
echo release >latest_checkpointed_iteration.txt
python3 -m zipfile -c model.zip release latest_checkpointed_iteration.txt
checkpoint() { bash scripts/download_checkpoint.sh "$@"; }
run 2 checkpoint
says "usage: scripts/download_checkpoint.sh gpt2|bert-uncased|bert-cased"
run 1 checkpoint gpt2
says "cannot be fetched. Run this again to continue, or download it elsewhere, copy it to data/megatron_gpt2/gpt2.zip"
place model.zip https://api.ngc.nvidia.com/v2/models/nvidia/megatron_lm_345m/versions/v0.0/zip
for program in curl wget; do  # the connection breaks, and the next call continues
  rm -rf data/megatron_gpt2
  downloader "$program"
  touch cut
  run 1 checkpoint gpt2
  says "Run this again to continue"
  run 0 checkpoint gpt2
  says "gpt2.zip: SHA-256 $(sum model.zip) (none is published to compare it with)"
  says "data/megatron_gpt2/release/mp_rank_00/model_optim_rng.pt: unpacked"
  [[ $(sum data/megatron_gpt2/gpt2.zip) == $(sum model.zip) ]] || fail "another file"
  rm cut
done
run 0 checkpoint gpt2
says "already there"
rm -rf data/megatron_gpt2  # the connection breaks, and the server cannot continue
downloader curl
touch cut
run 1 checkpoint gpt2
rm cut
touch whole
run 0 checkpoint gpt2
[[ $(sum data/megatron_gpt2/gpt2.zip) == $(sum model.zip) ]] || fail "another file"
rm whole
[[ ! -e data/megatron_gpt2/.unpacked ]] || fail "a temporary folder is left"
mkdir -p by_hand  # without a network
cp model.zip by_hand/bert-cased.zip
CHECKPOINT_SHA256=$(sum model.zip) run 0 checkpoint bert-cased by_hand
rm -r by_hand/release
CHECKPOINT_SHA256=0 run 1 checkpoint bert-cased by_hand
says "by_hand/bert-cased.zip has the SHA-256 $(sum model.zip), not 0"
head -c 500 model.zip >by_hand/bert-cased.zip
run 1 checkpoint bert-cased by_hand
says "by_hand/bert-cased.zip is no whole zip file"
python3 -m zipfile -c by_hand/bert-cased.zip cased
run 1 checkpoint bert-cased by_hand
says "has no release/mp_rank_00/model_optim_rng.pt"
echo "downloads: all as they should be"
