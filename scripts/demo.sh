#!/usr/bin/env bash
# The whole way once, small: a corpus, its shards, a GPT trained on 8 ranks, text. Usage: scripts/demo.sh
# Can be interrupted and run again at any point; each step that is done is not done twice.
set -euo pipefail
cd "$(dirname "$0")/.."

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
  ./megatron_preprocess sample-corpus --output "$corpus"  # appears under its name only when it is whole
fi

heading "2/4  Shards: $shards-00000.h5 ..."
if [[ -f $shards.complete && -f $shards-00000.h5 ]]; then
  echo "already there"
else
  scripts/launch.sh 2 ./megatron_preprocess --input "$corpus" --output "$shards" --tokenizer byte
  touch "$shards.complete"
fi

heading "3/4  Training on 8 ranks: inputs/demo.toml"
status=0
scripts/launch.sh 8 ./megatron_train inputs/demo.toml || status=$?
if ((status != 0)); then
  if ((status == 75)); then
    echo "demo: stopped on request with a good checkpoint; \`make demo\` resumes it" >&2
  fi
  exit "$status"
fi

heading "4/4  Text from the model"
./megatron_generate "$run" --prompt "$prompt" --max-new-tokens 300 --temperature 0.7 --seed 1

cat <<TEXT

The loss plot is $PWD/$run/loss.svg, every number of the run is in $run/metrics.jsonl.
Next:
  ./megatron_generate $run --prompt "The old king" --temperature 0.5
  scripts/launch.sh 8 ./megatron_train inputs/demo.toml --set run.directory=runs/mine --set parallel.tensor=4
  scripts/launch.sh 2 ./megatron_preprocess --input YOUR_TEXT.jsonl --output data/mine --tokenizer byte
  README.md shows the same with your own text; docs/README.md is the guide.
TEXT
