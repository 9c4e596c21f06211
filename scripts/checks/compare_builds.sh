#!/usr/bin/env bash
# Do two builds train the same numbers? Usage: scripts/checks/compare_builds.sh OLD NEW [NAME...]
#
# OLD and NEW are folders with megatron_train, megatron_preprocess and megatron_checkpoint. Each configuration below is
# trained by both on the same data: the metrics without times must be equal, and
# `megatron_checkpoint diff` must find no difference in any bit. Then NEW continues OLD's run from the middle, which must
# give the same as well. Ends with 1 if anything differs. For changes that are to change no number.
set -euo pipefail

(($# >= 2)) || { sed -n 2,7p "$0" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2")
shift 2
launch=$(realpath "$(dirname "$0")/../launch.sh")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# name | ranks | keys beyond those of every configuration
configurations='
one_rank            | 1 |
grid_2x2x2          | 8 | parallel.tensor=2 parallel.pipeline=2
sequence_parallel   | 4 | parallel.tensor=2 parallel.sequence_parallel=true
interleaved         | 2 | parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2
zero_bubble         | 2 | parallel.pipeline=2 parallel.schedule=zero_bubble
distributed         | 4 | optimizer.share=state parallel.tensor=2
bf16                | 2 | precision.compute=bf16 parallel.tensor=2
fp16                | 2 | precision.compute=fp16 parallel.pipeline=2
full_recompute      | 2 | recompute.mode=full parallel.pipeline=2
llama               | 4 | parallel.tensor=2 parallel.pipeline=2 model.position_embedding=rope model.normalization=rmsnorm model.activation=swiglu model.bias=false model.query_groups=2 model.tie_embeddings=false
documents           | 2 | data.reset_attention_mask=true data.reset_position_ids=true data.eod_mask_loss=true parallel.pipeline=2
blend               | 2 | data.train=[{path="one",weight=3},{path="two",weight=1}]
curriculum          | 2 | train.curriculum={schedule="fixed_linear",start=8,steps=6,multiple=8}
key_tokens          | 2 | loss.name=key_tokens loss.token_ids=[32,101] loss.alpha=0.5 parallel.pipeline=2
alibi               | 2 | model.position_embedding=alibi parallel.tensor=2 model.activation=relu
'

cat >input.toml <<'END'
model.layers = 4
model.hidden_size = 32
model.attention_heads = 4
model.sequence_length = 32
train.steps = 8
train.micro_batch_size = 2
train.global_batch_size = 16
train.evaluate_every = 4
train.evaluate_steps = 1
learning_rate.peak = 1e-2
data.train = "one"
data.split = "80,20,0"
run.metrics_every = 1
checkpoint.every_steps = 4
checkpoint.keep_last = 10
END
"$old"/megatron_preprocess sample-corpus --output one.jsonl --megabytes 0.1 >/dev/null
tac one.jsonl >two.jsonl
for name in one two; do
  "$old"/megatron_preprocess --input $name.jsonl --output $name --tokenizer byte >/dev/null
done

train() {  # PROGRAMS RANKS DIRECTORY [KEY=VALUE...]
  local programs=$1 ranks=$2 directory=$3 sets=()
  shift 3
  for key in "$@"; do sets+=(--set "$key"); done
  if ! "$launch" "$ranks" "$programs"/megatron_train input.toml --set run.directory="$directory" "${sets[@]}" \
    >output 2>&1; then
    tail -n 20 output >&2
    return 1
  fi
}
# Every line of the metrics without what depends on the clock or the machine.
numbers() {
  sed -E 's/"(time|step_seconds|tokens_per_second|[a-z]+_tflops_per_rank)": *[^,}]*,?//g' "$1/metrics.jsonl"
}
same() {  # WHAT DIRECTORY_A DIRECTORY_B
  diff <(numbers "$2") <(numbers "$3") >difference || { echo "$1: the metrics differ:"; head -n 6 difference; return 1; }
  "$new"/megatron_checkpoint diff "$2" "$3" >difference 2>&1 || { echo "$1: the checkpoints differ:"; head -n 6 difference; return 1; }
}

failed=0 count=0
while IFS='|' read -r name ranks keys; do
  name=${name// /} ranks=${ranks// /}
  [[ -n $name ]] || continue
  (($# == 0)) || [[ " $* " == *" $name "* ]] || continue
  read -ra keys <<<"$keys"
  count=$((count + 1))
  train "$old" "$ranks" old_$name "${keys[@]}"
  train "$new" "$ranks" new_$name "${keys[@]}"
  train "$old" "$ranks" mixed_$name "${keys[@]}" train.stop_after=4
  train "$new" "$ranks" mixed_$name "${keys[@]}"
  if same "$name" old_$name new_$name && same "$name, continued by NEW" old_$name mixed_$name; then
    echo "$name: equal"
  else
    failed=$((failed + 1))
  fi
  rm -rf old_$name new_$name mixed_$name
done <<<"$configurations"
echo "$count configurations, $failed differ"
((failed == 0 && count > 0))
