#!/usr/bin/env bash
# Downloads and unpacks one of NVIDIA's models of 345 million parameters, checkpoints of Megatron-LM, with which its own
# first steps begin. Usage: scripts/download_checkpoint.sh gpt2|bert-uncased|bert-cased [FOLDER]
# (default: data/megatron_NAME). FOLDER/NAME.zip stays; a download that was cut off continues.
# Needs a network, curl or wget, and unzip or python3. Without a network, copy the file by hand to FOLDER/NAME.zip and run
# this again. No sum of these files is published: the SHA-256 of what came is printed, to compare with another download;
# CHECKPOINT_SHA256=SUM compares it here. CHECKPOINT_MIRROR=URL takes URL/NAME.zip instead of NVIDIA's place.
# docs/published_models.md has the commands that come next.
set -euo pipefail
. "$(dirname "$0")/fetch_url.sh"

nvidia=https://api.ngc.nvidia.com/v2/models/nvidia
case ${1:-} in
  gpt2) place=$nvidia/megatron_lm_345m/versions/v0.0/zip ;;
  bert-uncased) place=$nvidia/megatron_bert_345m/versions/v0.1_uncased/zip ;;
  bert-cased) place=$nvidia/megatron_bert_345m/versions/v0.1_cased/zip ;;
  *)
    echo "usage: scripts/download_checkpoint.sh gpt2|bert-uncased|bert-cased [FOLDER]" >&2
    exit 2 ;;
esac
name=$1
folder=${2:-data/megatron_$name}
archive=$folder/$name.zip partial=$folder/$name.zip.part
model=$folder/release/mp_rank_00/model_optim_rng.pt
[[ -n ${CHECKPOINT_MIRROR:-} ]] && place=$CHECKPOINT_MIRROR/$name.zip

if [[ -f $model ]]; then
  echo "$model: already there"
  exit 0
fi
mkdir -p "$folder"
if [[ ! -f $archive ]]; then
  if ! fetch_url "$place" "$partial"; then
    echo "download_checkpoint: $place cannot be fetched. Run this again to continue, or download it elsewhere, copy it to" \
      "$archive, and run this again" >&2
    exit 1
  fi
  mv "$partial" "$archive"
  echo "$archive: downloaded from $place"
fi
sum=$(sha256sum <"$archive")
sum=${sum%% *}
if [[ -n ${CHECKPOINT_SHA256:-} && $sum != "$CHECKPOINT_SHA256" ]]; then
  echo "download_checkpoint: $archive has the SHA-256 $sum, not $CHECKPOINT_SHA256; remove it and run this again" >&2
  exit 1
fi
[[ -n ${CHECKPOINT_SHA256:-} ]] || echo "$archive: SHA-256 $sum (none is published to compare it with)"

unpacked=$folder/.unpacked  # until all is there
rm -rf "$unpacked"
unpack() {  # a zip file has a sum of each of its files, which both check
  if command -v unzip >/dev/null; then
    unzip -q -o "$archive" -d "$unpacked"
  elif command -v python3 >/dev/null; then
    python3 -m zipfile -e "$archive" "$unpacked"
  else
    echo "download_checkpoint: neither unzip nor python3 is installed" >&2
    exit 1
  fi
}
if ! unpack; then
  rm -rf "$unpacked"
  echo "download_checkpoint: $archive is no whole zip file; remove it and run this again" >&2
  exit 1
fi
if [[ ! -f $unpacked/release/mp_rank_00/model_optim_rng.pt ]]; then
  rm -rf "$unpacked"
  echo "download_checkpoint: $archive has no release/mp_rank_00/model_optim_rng.pt: it is another file than $place" >&2
  exit 1
fi
cp -rl "$unpacked/." "$folder/" 2>/dev/null || cp -r "$unpacked/." "$folder/"
rm -rf "$unpacked"
echo "$model: unpacked; docs/published_models.md says what comes next"
