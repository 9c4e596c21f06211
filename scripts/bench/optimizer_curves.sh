#!/usr/bin/env bash
# Trains a model of 2 million parameters on Shakespeare with each optimizer over a small grid of learning rates, for the
# table in docs/training.md. Prints the validation loss of every run, and of each optimizer's best run at every
# hundredth step. Usage: scripts/bench/optimizer_curves.sh [FOLDER]   (about an hour on one core; runs that are
# there are not trained again)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/runs/optimizer_curves}
steps=${STEPS:-1000}
mkdir -p "$folder"
cd "$folder"
"$root/scripts/fetch_text.sh" shakespeare
compgen -G "data/shakespeare-*.h5" > /dev/null ||
  "$root/megatron_preprocess" --input data/text/shakespeare.txt --output data/shakespeare --tokenizer byte

cat > input.toml <<END
[model]
layers = 10
hidden_size = 128
attention_heads = 4
sequence_length = 128
position_embedding = "rope"
hidden_dropout = 0
attention_dropout = 0

[train]
steps = $steps
micro_batch_size = 8
global_batch_size = 8
evaluate_every = 50
evaluate_steps = 32

[optimizer]
weight_decay = 0.1

[learning_rate]
warmup_fraction = 0.05

[data]
train = "data/shakespeare"
split = "90,10"

[run]
log_every = 100
END

train() {  # NAME KEYS...
  local name=$1
  shift
  [[ -e runs/$name/metrics.jsonl ]] && return
  "$root/megatron_train" input.toml --set "run.directory=\"$name.partial\"" "${@/#/--set=}" > "$name.log"
  mkdir -p runs
  mv "$name.partial" "runs/$name"
}

for rate in 1e-3 2e-3 4e-3 8e-3; do
  train "adamw_$rate" optimizer.name=\"adamw\" "optimizer.betas=[0.9, 0.99]" learning_rate.peak=$rate
  train "muon_$rate" optimizer.name=\"muon\" optimizer.momentum=0.95 optimizer.muon_scale=\"match_adam_rms\" \
    "optimizer.betas=[0.9, 0.99]" learning_rate.peak=$rate
done
for rate in 1e-4 2e-4 4e-4 8e-4; do
  train "lion_$rate" optimizer.name=\"lion\" "optimizer.betas=[0.9, 0.99]" optimizer.weight_decay=1.0 learning_rate.peak=$rate
done
