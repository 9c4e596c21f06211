#include "config/schema/megatron_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace megatron {

namespace {

constexpr MegatronFlag kModel[] = {
    {"--num-layers", "model.layers", ""},
    {"--encoder-num-layers", "model.layers", "T5's encoder"},
    {"--decoder-num-layers", "model.decoder_layers", ""},
    {"--hidden-size", "model.hidden_size", ""},
    {"--ffn-hidden-size", "model.ffn_hidden_size", ""},
    {"--num-attention-heads", "model.attention_heads", ""},
    {"--kv-channels", "model.head_size", ""},
    {"--attention-head-type", "model.query_groups", "multiquery is 1"},
    {"--group-query-attention", "model.query_groups", "the number of groups says it"},
    {"--num-query-groups", "model.query_groups", ""},
    {"--num-key-value-heads", "model.query_groups", ""},
    {"--max-position-embeddings", "model.max_position_embeddings", ""},
    {"--seq-length", "model.sequence_length", ""},
    {"--encoder-seq-length", "model.sequence_length", ""},
    {"--decoder-seq-length", "model.decoder_sequence_length", ""},
    {"--make-vocab-size-divisible-by", "model.vocab_multiple", "of the whole table, not times the tensor ranks"},
    {"--vocab-size", "model.vocab_size", "the data's, if not given"},
    {"--position-embedding-type", "model.position_embedding", "absolute is learned, rotary is rope"},
    {"--use-rotary-position-embeddings", "model.position_embedding", "rope"},
    {"--no-position-embedding", "model.position_embedding", "none"},
    {"--rotary-position-embeddings-theta", "model.rotary_base", ""},
    {"--rotary-base", "model.rotary_base", ""},
    {"--rotary-percent", "model.rotary_fraction", ""},
    {"--rotary-seq-len-interpolation-factor", "model.rotary_scaling", "type linear"},
    {"--use-rope-scaling", "model.rotary_scaling", "type llama3"},
    {"--normalization", "model.normalization", "layernorm or rmsnorm"},
    {"--layernorm-epsilon", "model.norm_epsilon", ""},
    {"--norm-epsilon", "model.norm_epsilon", ""},
    {"--qk-layernorm", "model.query_key_norm", "true"},
    {"--glu-activation", "model.activation", "geglu or swiglu; there is no liglu or reglu"},
    {"--swiglu", "model.activation", "swiglu"},
    {"--squared-relu", "", "no activation here squares a relu; model.activation lists them"},
    {"--openai-gelu", "model.activation", "gelu is the tanh form; gelu_exact the other"},
    {"--untie-embeddings-and-output-weights", "model.tie_embeddings", "false"},
    {"--disable-bias-linear", "model.bias", "false"},
    {"--add-qkv-bias", "model.bias", "query_key_value, next to no other"},
    {"--apply-residual-connection-post-layernorm", "",
     "the residual adds the input of a part, never its normalized form"},
    {"--apply-layernorm-1p", "", "the scale is stored whole; its initial value is 1"},
    {"--attention-dropout", "model.attention_dropout", ""},
    {"--hidden-dropout", "model.hidden_dropout", ""},
    {"--init-method-std", "model.init_std", ""},
    {"--init-method-xavier-uniform", "", "weights are normal, with model.init_std"},
    {"--window-size", "model.attention_window", "one number: a token sees itself and those before it"},
    {"--bert-no-binary-head", "", "order of sentences is always trained with model.family = \"bert\""},
    {"--model-type", "model.family", "gpt, bert or t5"},
    {"--no-query-key-layer-scaling", "", "scores are never scaled by layer"},
    {"--attention-softmax-in-fp32", "", "always"},
    {"--fp32-residual-connection", "", "the residual has the precision of precision.compute"},
    {"--embedding-weights-in-fp32", "", "master weights are fp32 in every precision"},
    {"--relative-attention-num-buckets", "model.relative_buckets", ""},
    {"--relative-attention-max-distance", "model.relative_max_distance", ""},
    {"--onnx-safe", "", "nothing to switch on; megatron_checkpoint export writes Hugging Face models"},
};

constexpr MegatronFlag kExperts[] = {
    {"--num-experts", "moe.experts", ""},
    {"--num-experts-switch", "moe.experts", ""},
    {"--expert-interval", "moe.every", ""},
    {"--moe-layer-freq", "moe.every", "or moe.layers"},
    {"--topk", "moe.top_k", ""},
    {"--moe-router-topk", "moe.top_k", ""},
    {"--moe-aux-loss-coeff", "moe.balance_coefficient", ""},
    {"--moe-loss-coeff", "moe.balance_coefficient", ""},
    {"--moe-z-loss-coeff", "moe.z_coefficient", ""},
    {"--moe-router-bias-update-rate", "moe.bias_rate", ""},
    {"--moe-expert-capacity-factor", "moe.capacity_factor", ""},
    {"--moe-train-capacity-factor", "moe.capacity_factor", ""},
    {"--moe-eval-capacity-factor", "moe.evaluation_capacity_factor", ""},
    {"--moe-min-capacity", "moe.minimum_capacity", ""},
    {"--moe-token-drop-policy", "moe.drop", ""},
    {"--disable-moe-token-dropping", "moe.drop", "none"},
    {"--moe-ffn-hidden-size", "moe.ffn_hidden_size", ""},
    {"--moe-shared-expert-intermediate-size", "moe.shared_experts", "in experts of moe.ffn_hidden_size"},
    {"--moe-input-jitter-eps", "moe.jitter", ""},
    {"--mlp-type", "moe.residual", "residual is true"},
    {"--moe-expert-parallel-size", "parallel.expert", ""},
    {"--expert-model-parallel-size", "parallel.expert", ""},
    {"--enable-expert-tensor-parallelism", "", "experts are divided over tensor ranks as dense layers are"},
    {"--create-moe-param-group", "optimizer.groups", "a group with the experts' names"},
    {"--use-tutel", "", "dispatch is this program's own"},
    {"--disable-moe-top2-2nd-expert-sampling", "", "experts are never sampled"},
};

constexpr MegatronFlag kParallel[] = {
    {"--tensor-model-parallel-size", "parallel.tensor", ""},
    {"--model-parallel-size", "parallel.tensor", ""},
    {"--pipeline-model-parallel-size", "parallel.pipeline", ""},
    {"--pipeline-model-parallel-split-rank", "parallel.split_stage", ""},
    {"--num-layers-per-virtual-pipeline-stage", "parallel.virtual_stages", "the number of chunks, not of layers"},
    {"--enable-zbh1-pipeline", "parallel.schedule", "zero_bubble"},
    {"--enable-zbh1-exact-semantics", "parallel.schedule", "zero_bubble is always exact"},
    {"--no-pipeline-parallel", "parallel.pipeline", "1"},
    {"--decoder-first-pipeline-num-layers", "parallel.layers_per_stage", "a list of all stages"},
    {"--decoder-last-pipeline-num-layers", "parallel.layers_per_stage", "a list of all stages"},
    {"--pipeline-model-parallel-layout", "parallel.layers_per_stage", "a list of all stages"},
    {"--standalone-embedding-stage", "parallel.layers_per_stage", "0 for the first stage"},
    {"--sequence-parallel", "parallel.sequence_parallel", "true"},
    {"--context-parallel-size", "parallel.context", ""},
    {"--cp-comm-type", "parallel.context_exchange", "all_gather is gathered, a2a is ulysses, p2p is ring"},
    {"--ds-sequence-parallel-size", "parallel.context", ""},
    {"--ds-sequence-parallel-fpdt", "",
     "a rank's part of a sequence is not cut further; parallel.context makes it shorter"},
    {"--ds-sequence-parallel-fpdt-chunk-size", "", "a rank's part of a sequence is not cut further"},
    {"--ds-sequence-parallel-fpdt-offloading", "", "activations are not offloaded"},
    {"--use-distributed-optimizer", "optimizer.share", "state"},
    {"--zero-stage", "optimizer.share", "0 is none, 1 is state, 2 is gradients, 3 is weights"},
    {"--data-parallel-sharding-strategy", "optimizer.share",
     "no_shard is none, optim is state, optim_grads is gradients, optim_grads_params is weights"},
    {"--num-distributed-optimizer-instances", "optimizer.share_within",
     "in ranks of an instance: context × data ranks over instances"},
    {"--use-megatron-fsdp", "optimizer.share", "as --data-parallel-sharding-strategy says"},
    {"--use-torch-fsdp2", "optimizer.share", "weights"},
    {"--use-custom-fsdp", "optimizer.share", "as --data-parallel-sharding-strategy says"},
    {"--overlap-grad-reduce", "parallel.overlap_gradients", "true"},
    {"--overlap-param-gather", "optimizer.share", "weights are always gathered under the forward"},
    {"--DDP-impl", "", "there is one implementation; gradients are summed in fp32 buckets"},
    {"--no-contiguous-buffers-in-local-ddp", "", "gradients always lie in one buffer"},
    {"--accumulate-allreduce-grads-in-fp32", "", "always"},
    {"--no-scatter-gather-tensors-in-pipeline", "", "with parallel.sequence_parallel messages are divided already"},
    {"--no-async-tensor-model-parallel-allreduce", "", "nothing to switch off"},
    {"--distributed-backend", "run.communication", "nccl or mpi"},
    {"--distributed-timeout-minutes", "run.hang_minutes", ""},
    {"--local_rank", "", "the launcher says it: mpirun, srun"},
    {"--nproc_per_node", "", "mpirun -np N, or srun --ntasks-per-node=N: docs/slurm.md"},
    {"--nnodes", "", "the launcher says it: docs/slurm.md"},
    {"--node_rank", "", "the launcher says it: docs/slurm.md"},
    {"--master_addr", "", "MPI finds the ranks"},
    {"--master_port", "", "MPI finds the ranks"},
    {"--lazy-mpu-init", "", "nothing to switch on"},
    {"--use-cpu-initialization", "", "initial weights are the same on every layout and device"},
    {"--data-parallel-random-init", "", "initial weights are the same on every layout"},
    {"--no-initialization", "", "weights that are loaded are not drawn first"},
    {"--remote-device", "optimizer.offload", "cpu is host; GPUs have no nvme, and weights stay"},
    {"--cpu-optimizer", "optimizer.offload", "host; the GPU computes the update there"},
    {"--optimizer-cpu-offload", "optimizer.offload", "host; the GPU computes the update there"},
    {"--optimizer-offload-fraction", "optimizer.offload_fraction", ""},
    {"--overlap-p2p-communication", "", "sends are always in the background"},
};

constexpr MegatronFlag kTraining[] = {
    {"--micro-batch-size", "train.micro_batch_size", ""},
    {"--batch-size", "train.global_batch_size", "of all ranks; Megatron's old flag was per data rank"},
    {"--global-batch-size", "train.global_batch_size", ""},
    {"--rampup-batch-size", "train.batch_ramp_up", "a table {start, increment, samples}"},
    {"--train-iters", "train.steps", ""},
    {"--train-samples", "train.samples", ""},
    {"--train-tokens", "train.tokens", ""},
    {"--epochs", "train.epochs", ""},
    {"--exit-interval", "train.stop_after", "one step, not a multiple"},
    {"--exit-duration-in-mins", "run.max_minutes", ""},
    {"--exit-signal-handler", "", "always: SIGTERM and others save and stop, with exit code 75 (docs/slurm.md)"},
    {"--kill-switch-file", "", "a file STOP in run.directory stops the run: docs/slurm.md"},
    {"--seed", "train.seed", ""},
    {"--eval-interval", "train.evaluate_every", ""},
    {"--eval-iters", "train.evaluate_steps", ""},
    {"--skip-train", "", "megatron_eval evaluates a checkpoint"},
    {"--curriculum-learning", "train.curriculum", ""},
    {"--data-efficiency-curriculum-learning", "", "only lengths have a curriculum: train.curriculum"},
    {"--random-ltd", "", "every layer sees every token"},
    {"--recompute-activations", "recompute.mode", "selective"},
    {"--recompute-granularity", "recompute.mode", "selective or full"},
    {"--recompute-modules", "recompute.parts",
     "layernorm is norms, moe_act activations, mlp, moe and shared_experts feed_forward; no part for core_attn, whose "
     "scores are never kept"},
    {"--recompute-method", "recompute.layers", "block is the first N layers of a stage; without the key all are"},
    {"--recompute-num-layers", "recompute.layers", ""},
    {"--checkpoint-activations", "recompute.mode", "full"},
    {"--deepspeed-activation-checkpointing", "recompute.mode", "full"},
    {"--distribute-saved-activations", "parallel.sequence_parallel", "divides what is saved"},
    {"--partition-activations", "parallel.sequence_parallel", "divides what is saved"},
    {"--checkpoint-in-cpu", "", "activations are not offloaded"},
    {"--contigious-checkpointing", "", "what is kept lies in memory that is planned and allocated once"},
    {"--synchronize-each-layer", "", "nothing to switch on"},
    {"--fp16", "precision.compute", "fp16"},
    {"--bf16", "precision.compute", "bf16"},
    {"--loss-scale", "precision.loss_scale", ""},
    {"--initial-loss-scale", "precision.initial_loss_scale", ""},
    {"--min-loss-scale", "precision.minimum_loss_scale", ""},
    {"--loss-scale-window", "precision.loss_scale_window", ""},
    {"--hysteresis", "precision.loss_scale_hysteresis", ""},
    {"--fp16-lm-cross-entropy", "", "the loss is computed in fp32"},
    {"--fp8-hybrid", "", "no product is in 8 bits; precision.compute lists what is"},
    {"--fp8-e4m3", "", "no product is in 8 bits; precision.compute lists what is"},
    {"--fp8-margin", "", "no product is in 8 bits; precision.compute lists what is"},
    {"--fp8-interval", "", "no product is in 8 bits; precision.compute lists what is"},
    {"--fp8-amax-history-len", "", "no product is in 8 bits; precision.compute lists what is"},
    {"--fp8-amax-compute-algo", "", "no product is in 8 bits; precision.compute lists what is"},
    {"--use-flash-attn", "", "scores are never stored, on no device"},
    {"--use-flash-attn-v2", "", "scores are never stored, on no device"},
    {"--use-flash-attn-triton", "", "scores are never stored, on no device"},
    {"--use-flash-attn-builder", "", "scores are never stored, on no device"},
    {"--attention-backend", "", "scores are never stored, on no device"},
    {"--calculate-per-token-loss", "", "always: a loss is divided by the tokens of the whole batch"},
    {"--kd", "", "models are not distilled: there is no teacher"},
    {"--mos", "", "models are not distilled: there is no teacher"},
    {"--kd-alpha-ce", "", "models are not distilled: there is no teacher"},
    {"--kd-beta-ce", "", "models are not distilled: there is no teacher"},
    {"--kd-temp", "", "models are not distilled: there is no teacher"},
    {"--load-teacher", "", "models are not distilled: there is no teacher"},
    {"--num-layers-teacher", "", "models are not distilled: there is no teacher"},
    {"--num-experts-teacher", "", "models are not distilled: there is no teacher"},
    {"--hidden-size-teacher", "", "models are not distilled: there is no teacher"},
    {"--num-attention-heads-teacher", "", "models are not distilled: there is no teacher"},
    {"--no-masked-softmax-fusion", "", "nothing to switch off"},
    {"--no-bias-gelu-fusion", "", "nothing to switch off"},
    {"--no-bias-dropout-fusion", "", "nothing to switch off"},
    {"--no-persist-layer-norm", "", "nothing to switch off"},
    {"--no-gradient-accumulation-fusion", "", "nothing to switch off"},
    {"--empty-unused-memory-level", "", "memory is planned, and allocated once"},
};

constexpr MegatronFlag kOptimizer[] = {
    {"--optimizer", "optimizer.name", "adam is adamw"},
    {"--lr", "learning_rate.peak", ""},
    {"--min-lr", "learning_rate.minimum", ""},
    {"--decoupled-lr", "optimizer.groups", "roles embedding and head with a learning_rate_factor, this rate over --lr"},
    {"--decoupled-min-lr", "optimizer.groups", "the minimum has the group's factor too"},
    {"--lr-mult", "optimizer.groups", "a group's learning_rate_factor"},
    {"--lr-decay-style", "learning_rate.decay", "the default here is cosine"},
    {"--lr-decay-iters", "learning_rate.decay_steps", ""},
    {"--lr-decay-samples", "learning_rate.decay_samples", ""},
    {"--lr-decay-tokens", "learning_rate.decay_tokens", ""},
    {"--lr-warmup-fraction", "learning_rate.warmup_fraction", ""},
    {"--lr-warmup-iters", "learning_rate.warmup_steps", ""},
    {"--lr-warmup-samples", "learning_rate.warmup_samples", ""},
    {"--lr-warmup-tokens", "learning_rate.warmup_tokens", ""},
    {"--warmup", "learning_rate.warmup_fraction", "a fraction here, per cent there"},
    {"--lr-wsd-decay-style", "learning_rate.wsd_style", ""},
    {"--lr-wsd-decay-iters", "learning_rate.wsd_decay_steps", ""},
    {"--lr-wsd-decay-samples", "learning_rate.wsd_decay_samples", ""},
    {"--override-opt_param-scheduler", "", "schedules are always those of the input file"},
    {"--use-checkpoint-opt_param-scheduler", "", "schedules are always those of the input file"},
    {"--weight-decay", "optimizer.weight_decay", ""},
    {"--start-weight-decay", "optimizer.weight_decay", ""},
    {"--end-weight-decay", "optimizer.weight_decay_end", ""},
    {"--weight-decay-incr-style", "optimizer.weight_decay_schedule", ""},
    {"--clip-grad", "optimizer.clip_grad_norm", ""},
    {"--use-precision-aware-optimizer", "optimizer.moments_dtype", "bf16; master weights and gradients stay fp32"},
    {"--exp-avg-dtype", "optimizer.moments_dtype", "fp32 or bf16, of both moments"},
    {"--exp-avg-sq-dtype", "optimizer.moments_dtype", "fp32 or bf16, of both moments"},
    {"--adam-beta1", "optimizer.betas", "the first of two"},
    {"--adam-beta2", "optimizer.betas", "the second of two"},
    {"--adam-eps", "optimizer.epsilon", ""},
    {"--sgd-momentum", "optimizer.momentum", ""},
    {"--use-mup", "optimizer.scaling", "mup"},
    {"--mup-base-hidden-size", "model.base_hidden_size", ""},
    {"--mup-width-mult", "model.base_hidden_size", "hidden_size over this"},
    {"--mup-base-head-dim", "model.base_head_size", ""},
    {"--mup-attn-scale-power", "", "always 1 where model.base_head_size is given"},
    {"--mup-embedding-mult", "", "always 1"},
    {"--mup-output-mult", "", "always 1 over the width's factor"},
    {"--muon-momentum", "optimizer.momentum", ""},
    {"--muon-use-nesterov", "optimizer.nesterov", "true is the default here"},
    {"--muon-scale-mode", "optimizer.muon_scale", "spectral"},
    {"--muon-tp-mode", "", "matrices are made orthogonal as a whole on every layout"},
};

constexpr MegatronFlag kData[] = {
    {"--data-path", "data.train", "prefixes of shards, in a blend with weights; megatron_preprocess makes them"},
    {"--train-data-path", "data.train", ""},
    {"--train-data", "data.train", "a task's file, with a [task]"},
    {"--valid-data-path", "data.validation", ""},
    {"--test-data-path", "data.test", ""},
    {"--split", "data.split", ""},
    {"--data-impl", "", "shards are HDF5; megatron_preprocess import reads .bin and .idx"},
    {"--dataset-impl", "", "shards are HDF5; megatron_preprocess import reads .bin and .idx"},
    {"--mmap-warmup", "", "nothing to switch on"},
    {"--data-cache-path", "", "indices are not stored"},
    {"--train-idx-path", "", "indices are not stored; data.order says the order"},
    {"--train-desc-path", "", "indices are not stored; data.order says the order"},
    {"--train-doc-idx-path", "", "indices are not stored; data.order says the order"},
    {"--train-sample-idx-path", "", "indices are not stored; data.order says the order"},
    {"--train-shuffle-idx-path", "", "indices are not stored; data.order says the order"},
    {"--train-data-exact-num-epochs", "train.epochs", ""},
    {"--return-data-index", "", "megatron_train --print-samples prints the tokens and the text of samples"},
    {"--repeated-dataloader", "", "a run that is longer than its data reads it again, in another order"},
    {"--retriever-seq-length", "", "there is no retriever"},
    {"--dataloader-type", "data.order", "megatron and megatron_core are the orders of Megatron's loaders"},
    {"--num-workers", "", "one thread reads ahead"},
    {"--mask-prob", "data.mask_probability", ""},
    {"--short-seq-prob", "data.short_probability", ""},
    {"--reset-position-ids", "data.reset_position_ids", "true"},
    {"--reset-attention-mask", "data.reset_attention_mask", "true"},
    {"--eod-mask-loss", "data.eod_mask_loss", "true"},
    {"--sample-rate", "", "all samples are used"},
    {"--tokenizer-type", "", "the shards know their tokenizer: megatron_preprocess --tokenizer"},
    {"--tokenizer-model", "", "megatron_preprocess --tokenizer sentencepiece --vocab-file FILE"},
    {"--vocab-file", "", "megatron_preprocess --vocab-file; the shards keep it"},
    {"--merge-file", "", "megatron_preprocess --merge-file; the shards keep it"},
    {"--vocab-extra-ids", "", "megatron_preprocess --extra-ids"},
    {"--vocab", "", "megatron_preprocess --vocab-file"},
    {"--json-key", "", "megatron_preprocess --json-key"},
    {"--json-keys", "", "megatron_preprocess --json-key, one call per key"},
    {"--output-prefix", "", "megatron_preprocess --output"},
    {"--append-eod", "", "megatron_preprocess ends documents by itself; --no-append-eod leaves it out"},
    {"--keep-newlines", "", "megatron_preprocess keeps texts as they are"},
    {"--workers", "", "megatron_preprocess runs on the ranks of its job: scripts/launch.sh N"},
};

constexpr MegatronFlag kRun[] = {
    {"--save", "run.directory", "checkpoints lie in it"},
    {"--load", "checkpoint.load", "a run continues its own newest checkpoint without it"},
    {"--save-interval", "checkpoint.every_steps", ""},
    {"--finetune", "checkpoint.initialize_from", "a checkpoint, of which only the weights are used"},
    {"--finetune-from", "checkpoint.initialize_from", ""},
    {"--pretrained-checkpoint", "checkpoint.initialize_from", ""},
    {"--no-save-optim", "", "checkpoints are always whole; megatron_checkpoint export writes weights alone"},
    {"--no-save-rng", "", "random numbers are functions of seed and step: there is no state to save"},
    {"--no-load-optim", "checkpoint.initialize_from", "takes the weights alone"},
    {"--no-load-lr-state", "", "schedules are always those of the input file"},
    {"--load-tag", "checkpoint.load", "the folder of the step"},
    {"--reset-iteration", "checkpoint.initialize_from", "begins at step 0"},
    {"--no-load-rng", "", "random numbers are functions of seed and step: there is no state to load"},
    {"--use-checkpoint-args", "", "a checkpoint that does not fit the input file is refused, key by key"},
    {"--exit-on-missing-checkpoint", "", "always"},
    {"--async-save", "checkpoint.async", "true"},
    {"--ckpt-format", "", "one format, for every layout; megatron_checkpoint converts"},
    {"--universal-checkpoint", "", "any checkpoint loads on any layout"},
    {"--target-tensor-parallel-size", "", "megatron_checkpoint reshape --tensor; training needs no reshaping"},
    {"--target-pipeline-parallel-size", "", "megatron_checkpoint reshape --pipeline; training needs no reshaping"},
    {"--target-pipeline-model-parallel-size", "", "megatron_checkpoint reshape --pipeline"},
    {"--log-interval", "run.log_every", ""},
    {"--tensorboard-dir", "run.tensorboard", "true; the events lie in run.directory"},
    {"--tensorboard-log-interval", "run.metrics_every", ""},
    {"--tensorboard-queue-size", "", "nothing is queued"},
    {"--log-timers-to-tensorboard", "run.tensorboard", "what metrics.jsonl has is written"},
    {"--log-batch-size-to-tensorboard", "run.tensorboard", "what metrics.jsonl has is written"},
    {"--no-log-learnig-rate-to-tensorboard", "run.tensorboard", "what metrics.jsonl has is written"},
    {"--no-log-loss-scale-to-tensorboard", "run.tensorboard", "what metrics.jsonl has is written"},
    {"--log-validation-ppl-to-tensorboard", "run.tensorboard", "what metrics.jsonl has is written"},
    {"--log-memory-to-tensorboard", "run.tensorboard", "what metrics.jsonl has is written; --dry-run plans memory"},
    {"--log-world-size-to-tensorboard", "", "the file run.log in run.directory says it"},
    {"--log-optimizer-states-to-tensorboard", "", "moments are not logged"},
    {"--log-num-zeros-in-grad", "", "zeros are not counted"},
    {"--log-params-norm", "run.parameter_norm", "true"},
    {"--timing-log-level", "", "phases of a step: run.trace_steps, or the table at the end of a run"},
    {"--timing-log-option", "", "phases of a step: run.trace_steps, or the table at the end of a run"},
    {"--transformer-timers", "run.trace_steps", "phases of a step, on every rank"},
    {"--profile", "run.trace_steps", "writes trace.json for Perfetto; MEGATRON_NVTX=1 for nsys"},
    {"--profile-steps", "run.trace_steps", "[first, last]"},
    {"--profile-ranks", "run.trace_steps", "all ranks"},
    {"--profile-backward", "run.trace_steps", "has both passes"},
    {"--wandb-project", "", "events are TensorBoard's; metrics.jsonl has every number"},
    {"--wandb-project-name", "", "events are TensorBoard's; metrics.jsonl has every number"},
    {"--wandb-entity-name", "", "events are TensorBoard's; metrics.jsonl has every number"},
    {"--wandb-exp-name", "", "events are TensorBoard's; metrics.jsonl has every number"},
    {"--wandb-save-dir", "", "events are TensorBoard's; metrics.jsonl has every number"},
    {"--adlr-autoresume", "", "slurm/train.sbatch requeues a job at its time limit"},
    {"--adlr-autoresume-interval", "", "slurm/train.sbatch requeues a job at its time limit"},
};

constexpr MegatronFlag kPrograms[] = {
    {"--out-seq-length", "", "megatron_generate --max-new-tokens counts new tokens alone"},
    {"--num-samples", "", "megatron_generate --samples, or --unconditional N"},
    {"--sample-input-file", "", "megatron_generate --prompts FILE"},
    {"--sample-output-file", "", "megatron_generate --output FILE"},
    {"--genfile", "", "megatron_generate --output FILE"},
    {"--recompute", "", "megatron_generate always keeps keys and values"},
    {"--top_p", "", "megatron_generate --top-p"},
    {"--top_k", "", "megatron_generate --top-k"},
    {"--task", "", "megatron_eval --task"},
    {"--valid-data", "", "megatron_eval --data; during training: evaluation.tasks"},
    {"--strict-lambada", "", "megatron_eval --strict"},
    {"--overlapping-eval", "", "megatron_eval --stride"},
    {"--inference-batch-times-seqlen-threshold", "", "megatron_generate fills the pipeline by itself"},
};

constexpr MegatronFlagGroup kGroups[] = {
    {"Model", kModel},
    {"Experts", kExperts},
    {"Parallelism", kParallel},
    {"Training", kTraining},
    {"Optimizer and schedules", kOptimizer},
    {"Data", kData},
    {"Checkpoints and runs", kRun},
    {"Generation and evaluation", kPrograms},
};

std::string flag_with_dashes(std::string_view flag) {
  std::string result;
  for (const char c : flag) {
    result += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

/// "model.bias: false"; what a row of the page has as its answer.
std::string answer(const MegatronFlag& flag) {
  if (flag.key.empty()) return std::string(flag.note);
  return fmt::format("`{}`{}{}", flag.key, flag.note.empty() ? "" : ": ", flag.note);
}

}  // namespace

std::span<const MegatronFlagGroup> megatron_flag_groups() {
  return kGroups;
}

const MegatronFlag* find_megatron_flag(std::string_view flag) {
  const std::string wanted = flag_with_dashes(flag);
  for (const MegatronFlagGroup& group : kGroups) {
    for (const MegatronFlag& row : group.flags) {
      if (flag_with_dashes(row.flag) == wanted) return &row;
    }
  }
  return nullptr;
}

std::string megatron_advice(const MegatronFlag& flag, std::string_view value) {
  if (flag.key.empty()) return fmt::format("no key here; {}", flag.note);
  return fmt::format("write {0} in the input file, or --set {0}={1}{2}{3}", flag.key,
                     value.empty() || !flag.note.empty() ? "VALUE" : value, flag.note.empty() ? "" : " (", flag.note) +
         (flag.note.empty() ? "" : ")");
}

std::string megatron_reference() {
  std::string text =
      "# Coming from Megatron-LM\n\n"
      "This page is printed from `src/config/schema/megatron_flags.cpp`; `test_config` compares them.\n\n"
      "A run is described by an input file ([keys](../inputs/README.md)) in place of flags: `megatron_train run.toml`, "
      "on several ranks `scripts/launch.sh N megatron_train run.toml` or `srun`. `--set KEY=VALUE` sets a key for one "
      "run. A flag of Megatron-LM on the command line is an error that names the key.\n\n"
      "Weights come by `scripts/megatron_to_safetensors.py` and `megatron_checkpoint import` "
      "([checkpoints](checkpoints.md)), `.bin` and `.idx` files by `megatron_preprocess import` ([data](data.md)). The "
      "tables list the flags of Megatron-LM, Megatron-DeepSpeed and Accelerate's plugin.\n";
  for (const MegatronFlagGroup& group : kGroups) {
    text += fmt::format("\n## {}\n\n| flag | here |\n|---|---|\n", group.title);
    for (const MegatronFlag& row : group.flags) text += fmt::format("| `{}` | {} |\n", row.flag, answer(row));
  }
  return text;
}

}  // namespace megatron
