#!/usr/bin/env bash
# The whole way once, small: a corpus, its shards, a GPT trained on 8 ranks, text. Usage: scripts/demo.sh
# Installed, as megatron_demo, it works in the current folder, with the programs next to it.
# Can be interrupted and run again at any point; each step that is done is not done twice.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
if [[ -x $here/megatron_train ]]; then
  again=megatron_demo programs=$here/ launch=$here/megatron_launch
  guide=$(readlink -f "$here/../share/megatron_train")/
  # As they are typed where the programs are on the PATH.
  typed=$programs typed_launch=$launch
  if [[ $(command -v megatron_train) -ef $here/megatron_train ]]; then typed='' typed_launch=megatron_launch; fi
else
  cd "$here/.."
  again='make demo' programs=./ launch=scripts/launch.sh guide=
  typed=$programs typed_launch=$launch
fi
input=${guide}inputs/demo.toml

corpus=data/demo_corpus.jsonl
shards=data/demo
run=runs/demo
prompt="Once upon a time"
mkdir -p data

heading() { printf '\n== %s\n' "$1"; }

heading "1/4  Text: $corpus"
if [[ -s $corpus ]]; then
  echo "already there"
else
  "${programs}megatron_preprocess" sample-corpus --output "$corpus"  # appears under its name only when it is whole
fi

heading "2/4  Shards: $shards-00000.h5 ..."
if [[ -f $shards.complete && -f $shards-00000.h5 ]]; then
  echo "already there"
else
  "$launch" 2 "${programs}megatron_preprocess" --input "$corpus" --output "$shards" --tokenizer byte
  touch "$shards.complete"
fi

heading "3/4  Training on 8 ranks: $input"
status=0
"$launch" 8 "${programs}megatron_train" "$input" || status=$?
if ((status != 0)); then
  if ((status == 75)); then
    echo "demo: stopped on request with a good checkpoint; \`$again\` resumes it" >&2
  fi
  exit "$status"
fi

heading "4/4  Text from the model"
"${programs}megatron_generate" "$run" --prompt "$prompt" --max-new-tokens 300 --temperature 0.7 --seed 1

cat <<TEXT

The loss plot is $PWD/$run/loss.svg, every number of the run is in $run/metrics.jsonl.
Next:
  ${typed}megatron_generate $run --prompt "The old king" --temperature 0.5
  $typed_launch 8 ${typed}megatron_train $input --set run.directory=runs/mine --set parallel.tensor=4
  $typed_launch 2 ${typed}megatron_preprocess --input YOUR_TEXT.jsonl --output data/mine --tokenizer byte
  ${guide}README.md shows the same with your own text; ${guide}docs/README.md is the guide.
TEXT
