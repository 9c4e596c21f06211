#!/usr/bin/env bash
# Trains a model of 2 million parameters on Shakespeare with each optimizer over a small grid of learning rates, for the
# table and the drawing in docs/training.md. Keeps each run's validation loss after every hundredth step in
# FOLDER/runs/table.txt, and a drawing of the best runs next to it in curves.svg.
# Usage: scripts/bench/optimizer_curves.sh [FOLDER]   (about an hour on one core; runs that are there are not repeated)
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
sequence_length = 64
position_embedding = "rope"
hidden_dropout = 0
attention_dropout = 0

[train]
steps = $steps
micro_batch_size = 8
global_batch_size = 8
evaluate_every = 100
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

for rate in 5e-4 1e-3 2e-3 4e-3 8e-3 1.6e-2; do
  train "adamw_$rate" optimizer.name=\"adamw\" "optimizer.betas=[0.9, 0.99]" learning_rate.peak=$rate
  train "muon_$rate" optimizer.name=\"muon\" optimizer.momentum=0.95 optimizer.muon_scale=\"match_adam_rms\" \
    "optimizer.betas=[0.9, 0.99]" learning_rate.peak=$rate
done
for rate in 2e-4 4e-4 8e-4 1.6e-3; do
  train "lion_$rate" optimizer.name=\"lion\" "optimizer.betas=[0.9, 0.99]" optimizer.weight_decay=1.0 learning_rate.peak=$rate
done

cd runs
for name in *_*; do
  sed -n 's/^{"kind":"eval".*"loss":\([0-9]*\.[0-9]\{4\}\).*/\1/p' "$name/metrics.jsonl" | paste -s -d ' ' | sed "s/^/$name /"
done | tee table.txt

# The best run of each optimizer as a drawing: 60 points a hundred steps, 200 a unit of loss.
sort -k11,11n table.txt | awk '
  { split($1, name, "_"); if (name[1] in seen) next; seen[name[1]] = 1; best[++count] = $0 }
  END {
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 700 300\" font-family=\"sans-serif\" font-size=\"12\">"
    print "<rect width=\"700\" height=\"300\" fill=\"white\"/>"
    for (loss = 1.6; loss < 2.85; loss += 0.2) {
      y = 260 - 200 * (loss - 1.6)
      printf "<path d=\"M50 %d H610\" stroke=\"#ddd\"/><text x=\"15\" y=\"%d\">%.1f</text>\n", y, y + 4, loss
    }
    for (step = 200; step <= 1000; step += 200) printf "<text x=\"%d\" y=\"285\">%d</text>\n", step * 0.6 - 10, step
    split("#1f77b4 #d62728 #2ca02c", colour, " ")
    for (i = 1; i <= count; ++i) {
      n = split(best[i], field, " ")
      points = ""
      for (k = 2; k <= n; ++k) points = points sprintf(" %d,%d", 60 * (k - 1), 260 - 200 * (field[k] - 1.6))
      printf "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>", points, colour[i]
      printf "<text x=\"610\" y=\"%d\" fill=\"%s\">%s</text>\n", 264 - 200 * (field[n] - 1.6) + (i == 3 ? -12 : 0), colour[i], field[1]
    }
    print "</svg>"
  }' > curves.svg
