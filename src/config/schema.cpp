#include "config/schema.h"

#include <array>

#include "config/constraints.h"

namespace megatron {
namespace {

using namespace constraints;

// Largest values: far above any use, small enough that no product in the program passes 2^63.
constexpr double kMaxExtent = 1 << 24;      // hidden sizes, ranks, micro-batches
constexpr double kMaxLayers = 1 << 16;      // each has a dozen records in the program
constexpr double kMaxVocabulary = 1 << 30;  // token ids are 32-bit integers
constexpr double kMaxBatch = 1 << 30;       // samples in one update
constexpr double kMaxSteps = 1e12;
constexpr double kMaxCurriculum = 1 << 30;  // lengths and steps of it
constexpr double kMaxSamples = 1e15;
constexpr double kMaxTokens = 1e18;
constexpr double kMaxLossScale = 0x1p100;

// The table's name, the key's name, and the field of the same name.
#define MEGATRON_KEY(table, field)          \
#table, #field, [](Config & c) -> auto& { \
    return c.table.field;                   \
  }
// A key whose value is more than the field of its name: the part of Config that holds it.
#define MEGATRON_KEY_IN(table, field, part) \
#table, #field, [](Config & c) -> auto& { \
    return c.part;                          \
  }

std::vector<Key> model_keys() {
  const Constraint extent = from_to(1, kMaxExtent);
  return {
      {MEGATRON_KEY(model, preset), any(), "", "none",
       "Sizes of a published model. Keys of the file override a preset of the file. A preset on the command line "
       "replaces the file's sizes, which the start of the run lists.",
       ""},
      {MEGATRON_KEY(model, family), one_of({"gpt", "bert"}), "", "",
       "Kind of transformer. gpt: a decoder of next tokens. bert: an encoder of masked tokens and of the order of two "
       "texts.",
       ""},
      {MEGATRON_KEY(model, layers),
       noted(from_to(1, kMaxLayers),
             "a multiple of parallel.pipeline × parallel.virtual_stages, unless "
             "parallel.layers_per_stage says otherwise"),
       "", "required", "Transformer layers.", ""},
      {MEGATRON_KEY(model, hidden_size), noted(extent, "a multiple of attention_heads, unless head_size is given"), "",
       "required", "Width of the hidden state.", ""},
      {MEGATRON_KEY(model, attention_heads), noted(extent, "a multiple of parallel.tensor"), "", "required",
       "Attention heads per layer.", ""},
      {MEGATRON_KEY_IN(model, head_size, model.given_head_size), extent, "channels", "= hidden_size / attention_heads",
       "Size of a query, key or value of one head.", ""},
      {MEGATRON_KEY(model, query_groups),
       noted(extent, "divides attention_heads; it and parallel.tensor divide evenly"), "", "= attention_heads",
       "Key/value heads: grouped-query attention; 1 is multi-query.", ""},
      {MEGATRON_KEY(model, attention_window), extent, "tokens", "none",
       "Sliding window: a token attends to this many positions, itself included. Without it, to all earlier "
       "positions.",
       ""},
      {MEGATRON_KEY(model, ffn_hidden_size), noted(extent, "a multiple of parallel.tensor"), "",
       "= 4 · hidden_size; with a gate 8/3 · hidden_size, down to a multiple of 64",
       "Inner width of the feed-forward part.", ""},
      {MEGATRON_KEY(model, sequence_length), extent, "tokens", "required", "Tokens per sample.", ""},
      {MEGATRON_KEY(model, max_position_embeddings), noted(extent, "at least sequence_length"), "tokens",
       "= sequence_length", "Rows of the learned position table.", ""},
      {MEGATRON_KEY(model, vocab_size), noted(from_to(1, kMaxVocabulary), "at least the data's"), "tokens",
       "the data's", "Size of the vocabulary. A plan without data needs it.", ""},
      {MEGATRON_KEY(model, vocab_multiple),
       noted(from_to(1, kMaxVocabulary), "padded size a multiple of parallel.tensor"), "tokens", "",
       "The vocabulary is padded to a multiple of this, independent of parallel.tensor. Padding logits are "
       "masked.",
       ""},
      {MEGATRON_KEY(model, position_embedding), one_of({"learned", "rope", "alibi", "none"}), "", "",
       "How the model learns of positions: a learned table, rotary embedding, ALiBi, or not at all.", ""},
      {MEGATRON_KEY(model, rotary_fraction), noted(above_to(0, 1), "with position_embedding \"rope\" only"), "", "",
       "Fraction of each head that is rotated, starting with its first channel.", ""},
      {MEGATRON_KEY(model, rotary_base), noted(in_fp32(above(1)), "with position_embedding \"rope\" only"), "", "",
       "Base of the rotation angles. The slowest rotation has a wavelength of about 2π times this many "
       "positions.",
       ""},
      {MEGATRON_KEY(model, rotary_scaling), noted(above_to(0, kMaxExtent), "with position_embedding \"rope\" only"), "",
       "none",
       "Stretches rotations to longer sequences. {type = \"linear\", factor} divides all positions; {type = "
       "\"llama3\", factor, low_frequency_factor = 1.0, high_frequency_factor = 4.0, original_length = 8192} "
       "divides those of slow rotations.",
       ""},
      {MEGATRON_KEY(model, activation), one_of(names_of(kActivations)), "", "",
       "Activation of the feed-forward part. gelu is the tanh form; swiglu and geglu are gated, with three "
       "matrices.",
       ""},
      {MEGATRON_KEY(model, normalization), one_of(names_of(kNormalizations)), "", "", "Kind of normalization.", ""},
      {MEGATRON_KEY(model, norm_epsilon), in_fp32(above(0)), "", "", "Added to the variance in a normalization.", ""},
      {MEGATRON_KEY(model, query_key_norm), any(), "", "",
       "Normalize queries and keys per head (RMSNorm with a weight), before the rotation.", ""},
      {MEGATRON_KEY(model, residual), one_of({"sequential", "parallel", "parallel_one_norm"}), "", "",
       "Inputs of the parts of a layer. sequential: the feed-forward part reads the sum of the layer's input and "
       "attention. parallel: both parts read the layer's input, each through its own norm (GPT-NeoX). "
       "parallel_one_norm: both through the same norm (Phi).",
       ""},
      {MEGATRON_KEY(model, norm_position), noted(one_of({"pre", "post"}), "post with family \"bert\" only"), "", "",
       "Normalization in front of each part of a layer, with a final one after all layers (Megatron's BERT); or after "
       "each part's sum with the residual (the original BERT).",
       ""},
      {MEGATRON_KEY(model, tie_embeddings), any(), "", "", "Use the token embedding as the output projection.", ""},
      {MEGATRON_KEY(model, scale_embeddings), any(), "", "",
       "Multiply word embeddings by √hidden_size, before positions are added (Gemma).", ""},
      {MEGATRON_KEY(model, embedding_norm), any(), "", "", "Normalize embeddings before the first layer (BLOOM).", ""},
      {MEGATRON_KEY(model, bias), any(), "", "",
       "Which linear layers of a block have a bias: all, none, or only those of attention, of query, key and "
       "value, or of the feed-forward part. LayerNorm always has one, RMSNorm never.",
       ""},
      {MEGATRON_KEY(model, head_bias), any(), "", "", "Add a bias to the logits (Phi). BERT's always have one.", ""},
      {MEGATRON_KEY(model, hidden_dropout), dropout(), "", "", "Dropout after embedding, attention and feed-forward.",
       ""},
      {MEGATRON_KEY(model, attention_dropout), dropout(), "", "", "Dropout of the attention probabilities.", ""},
      {MEGATRON_KEY(model, init_std), in_fp32(above(0)), "", "",
       "Standard deviation of initial weights. Output projections use it divided by √(2 · layers).", ""},
  };
}

std::vector<Key> parallel_keys() {
  const Constraint extent = from_to(1, kMaxExtent);
  return {
      {MEGATRON_KEY(parallel, tensor), noted(extent, "divides attention_heads, ffn_hidden_size, padded vocabulary"),
       "ranks", "", "Ranks that share each layer's matrices.", ""},
      {MEGATRON_KEY(parallel, pipeline), extent, "ranks", "", "Stages that the layers are divided into.", ""},
      {MEGATRON_KEY(parallel, virtual_stages), noted(extent, "above 1 with schedule \"interleaved\" only"), "chunks",
       "", "Chunks of the model per stage.", ""},
      {MEGATRON_KEY(parallel, context), noted(extent, "above 1: sequence_length is a multiple of 2 · context"), "ranks",
       "", "Ranks that share each sequence.", ""},
      {MEGATRON_KEY(parallel, expert), noted(extent, "divides the data size"), "ranks", "",
       "Ranks that share the experts of a layer.", ""},
      {MEGATRON_KEY(parallel, data), noted(extent, "tensor · context · pipeline · data = ranks"), "ranks",
       "what remains of the ranks", "Replicas of the model. If given, the rest of the ranks must be this number.", ""},
      {MEGATRON_KEY(parallel, sequence_parallel), noted(any(), "sequence_length is a multiple of tensor"), "", "",
       "Between the tensor-parallel parts, each tensor rank holds a slice of the sequence.", ""},
      {MEGATRON_KEY(parallel, schedule), one_of(names_of(kSchedules)), "", "",
       "Order of forward and backward passes in a pipeline.", ""},
      {MEGATRON_KEY(parallel, layers_per_stage),
       noted(extent,
             "one number per stage, or per chunk with virtual_stages, in the order of the model; their sum is layers"),
       "layers", "evenly", "Layers of each stage, for an uneven division.", ""},
      {MEGATRON_KEY(parallel, overlap_gradients), any(), "", "",
       "Sum gradients over data ranks during the backward pass, as `optimizer.distributed` always does. The "
       "results are the same.",
       ""},
  };
}

std::vector<Key> train_keys() {
  const std::string exactly = "exactly one of steps, samples, tokens, epochs";
  return {
      {MEGATRON_KEY(train, steps), noted(from_to(1, kMaxSteps), exactly), "updates", "one of four",
       "Length of the run.", "duration"},
      {MEGATRON_KEY(train, samples), noted(from_to(1, kMaxSamples), exactly), "samples", "one of four",
       "Length of the run. A remainder smaller than a batch is not trained.", "duration"},
      {MEGATRON_KEY(train, tokens), noted(from_to(1, kMaxTokens), exactly), "tokens", "one of four",
       "Length of the run. With a curriculum, only tokens that are used count.", "duration"},
      {MEGATRON_KEY(train, epochs),
       noted(
           [] {
             Constraint epochs = above(0);
             epochs.maximum = 1e9;
             return epochs;
           }(),
           exactly),
       "passes", "one of four", "Length of the run in passes over the training data.", "duration"},
      {MEGATRON_KEY(train, stop_after), from_to(1, kMaxSteps), "updates", "none",
       "Stop after this step with exit code 0. The step is saved, and all schedules remain those of the whole "
       "run. The same command with the key raised or removed continues.",
       ""},
      {MEGATRON_KEY(train, micro_batch_size), from_to(1, kMaxExtent), "samples", "",
       "Samples per forward pass on each rank.", ""},
      {MEGATRON_KEY(train, global_batch_size), noted(from_to(1, kMaxBatch), "a multiple of micro_batch_size · data"),
       "samples", "required", "Samples per update, over all ranks.", ""},
      {MEGATRON_KEY(train, batch_ramp_up),
       noted(from_to(1, kMaxSamples),
             "start < global_batch_size; increment divides the difference; every size on the "
             "way is a multiple of micro_batch_size · data"),
       "samples", "none", "Grow the batch from start to global_batch_size over this many samples.", ""},
      {MEGATRON_KEY(train, curriculum),
       noted(from_to(1, kMaxCurriculum),
             "every length a multiple of parallel.tensor with sequence_parallel; not together with batch_ramp_up"),
       "tokens, updates", "none",
       "Start with short sequences and leave out the rest of each sample. {schedule = \"fixed_linear\", start, "
       "steps, multiple = 8} grows from start to model.sequence_length within the given steps, in multiples; "
       "\"fixed_root\" does so with root_degree = 2. {schedule = \"fixed_discrete\", lengths, until} uses lengths[i] "
       "up to step until[i], then the last. Evaluation uses full length (docs/training.md).",
       ""},
      {MEGATRON_KEY(train, seed), from_to(0, 9e18), "", "", "Seed of initial weights, dropout and sample order.", ""},
      {MEGATRON_KEY_IN(train, evaluate_every, train), from_to(0, kMaxSteps), "updates", "",
       "Interval between evaluations on the validation split. \"epoch\": once per pass; 0: only at the end.", ""},
      {MEGATRON_KEY(train, evaluate_steps), from_to(1, kMaxSteps), "batches", "", "Batches per evaluation.", ""},
      {MEGATRON_KEY(train, max_skipped_steps), from_to(1, kMaxSteps), "updates", "",
       "Consecutive skipped steps that end the run with exit code 5. A step whose loss or gradient is not finite "
       "is skipped on all ranks: its samples are consumed and the schedules advance, but parameters and "
       "optimizer state do not change. While a dynamic loss scale is still decreasing, the last such step is "
       "repeated at the minimum scale; if its gradient is finite there, counting starts again.",
       ""},
      {MEGATRON_KEY(train, check_replicas_every), from_to(0, kMaxSteps), "updates", "",
       "Interval between comparisons of the parameters of which several ranks hold copies; they are also "
       "compared before each save. Copies that differ (a fault of memory, a processor or the network) are named, "
       "and the run ends with exit code 5. 0: never.",
       ""},
  };
}

std::vector<Key> recipe_keys() {
  const std::string one_warmup =
      "at most one way to say the warm-up; shorter than the decay (in a run that is too short: shortened to a tenth)";
  const std::string one_wsd = "one of the three with decay \"wsd\"; with the warm-up no longer than the decay length";
  const std::string dynamic = "for the dynamic loss scale: compute = \"fp16\", loss_scale = 0";
  const Constraint powers = from_to(0x1p-20, kMaxLossScale);
  const std::string one_decay = "at most one way to say the decay length";
  return {
      {MEGATRON_KEY(loss, name), one_of(names_of(kLossNames)), "", "",
       "What is minimised. language_model: the mean cross entropy of all targets. key_tokens: the mean over "
       "samples of their own mean times 1 + alpha · (how many of the sample's sequence_length + 1 tokens are "
       "among token_ids). Evaluations always use language_model. docs/losses.md says how to add a loss.",
       ""},
      {MEGATRON_KEY(loss, token_ids),
       noted(from_to(0, kMaxVocabulary - 1), "each once, within the vocabulary; name \"key_tokens\" needs them"), "",
       "none", "Tokens that give a sample more weight.", ""},
      {MEGATRON_KEY(loss, alpha), noted(in_fp32(from_to(0, 1e6)), "with name \"key_tokens\""), "", "",
       "Additional weight for each occurrence.", ""},
      {MEGATRON_KEY(precision, compute), one_of({"fp32", "bf16", "fp16"}), "", "",
       "Type of values and activations; sums, norms, losses and optimizer state are always fp32.", ""},
      {MEGATRON_KEY(precision, loss_scale), in_fp32(from_to(0, kMaxLossScale)), "", "",
       "Factor of the loss before the backward pass, by which the gradient is divided afterwards. 0: dynamic "
       "with compute \"fp16\", else 1.",
       ""},
      {MEGATRON_KEY(precision, initial_loss_scale), noted(powers, dynamic + "; at least minimum_loss_scale"), "", "",
       "Loss scale of a new run. A resumed run continues with its own.", ""},
      {MEGATRON_KEY(precision, minimum_loss_scale), noted(powers, dynamic), "", "", "Lower limit of the loss scale.",
       ""},
      {MEGATRON_KEY(precision, loss_scale_window), noted(from_to(1, kMaxSteps), dynamic), "updates", "",
       "Consecutive updates with a finite gradient after which the loss scale is doubled.", ""},
      {MEGATRON_KEY(precision, loss_scale_hysteresis), noted(from_to(1, kMaxSteps), dynamic), "updates", "",
       "Updates with a gradient that is not finite after which the loss scale is halved. Each further one halves "
       "it again, until it has been doubled.",
       ""},
      {MEGATRON_KEY(recompute, mode), one_of({"none", "selective", "full"}), "", "",
       "Which activations the backward pass computes again instead of keeping them. full: all of a layer but its "
       "input. selective: accepted, but does nothing, because attention keeps no scores. The results have the "
       "same bits.",
       ""},
      {MEGATRON_KEY(recompute, layers), noted(from_to(1, kMaxExtent), "with mode \"full\""), "layers", "all of them",
       "How many layers of each model chunk (of a stage or virtual stage) are recomputed, from the first on. The "
       "others keep their activations. If it is more than a chunk has, the whole chunk is recomputed.",
       ""},
      {MEGATRON_KEY(optimizer, name), one_of({"adamw", "sgd"}), "", "", "The optimizer.", ""},
      {MEGATRON_KEY_IN(optimizer, betas, optimizer), in_fp32(below_one()), "", "",
       "Decay rates of AdamW's two moments.", ""},
      {MEGATRON_KEY(optimizer, momentum), noted(in_fp32(below_one()), "with name \"sgd\""), "", "",
       "Momentum of SGD. 0: none.", ""},
      {MEGATRON_KEY(optimizer, epsilon), in_fp32(above(0)), "", "",
       "Added to the square root of AdamW's second moment.", ""},
      {MEGATRON_KEY(optimizer, weight_decay), in_fp32(at_least(0)), "", "",
       "Weight decay: decoupled from the gradient with \"adamw\", part of the gradient (L2) with \"sgd\". Biases and "
       "normalizations do not decay.",
       ""},
      {MEGATRON_KEY(optimizer, weight_decay_schedule), one_of({"constant", "linear", "cosine"}), "", "",
       "Shape of the change from weight_decay to weight_decay_end over the samples of the run.", ""},
      {MEGATRON_KEY(optimizer, weight_decay_end),
       noted(in_fp32(at_least(0)), "with weight_decay_schedule \"linear\" or \"cosine\", which need it"), "", "none",
       "Weight decay at the last step.", ""},
      {MEGATRON_KEY(optimizer, clip_grad_norm), in_fp32(at_least(0)), "", "",
       "Maximum norm of the whole gradient. 0: no clipping.", ""},
      {MEGATRON_KEY(optimizer, distributed), any(), "", "",
       "Divide the optimizer state among the data ranks. Gradients are then always reduce-scattered during the "
       "backward pass, independent of `parallel.overlap_gradients`.",
       ""},
      {MEGATRON_KEY(learning_rate, peak), in_fp32(above(0)), "", "", "Learning rate after the warm-up.", ""},
      {MEGATRON_KEY(learning_rate, minimum), noted(in_fp32(at_least(0)), "at most peak"), "", "",
       "Learning rate at the end of the decay.", ""},
      {MEGATRON_KEY(learning_rate, warmup_steps), noted(from_to(0, kMaxSteps), one_warmup), "updates", "",
       "Length of the linear warm-up.", "warmup"},
      {MEGATRON_KEY(learning_rate, warmup_samples), noted(from_to(0, kMaxSamples), one_warmup), "samples", "",
       "The same in samples.", "warmup"},
      {MEGATRON_KEY(learning_rate, warmup_tokens), noted(from_to(0, kMaxTokens), one_warmup), "tokens", "",
       "The same in tokens.", "warmup"},
      {MEGATRON_KEY(learning_rate, warmup_fraction), noted(below_one(), one_warmup), "of the decay length", "",
       "The same as a fraction.", "warmup"},
      {MEGATRON_KEY(learning_rate, decay), one_of({"cosine", "linear", "constant", "inverse_sqrt", "wsd"}), "", "",
       "Shape of the decay.", ""},
      {MEGATRON_KEY(learning_rate, decay_steps), noted(from_to(1, kMaxSteps), one_decay), "updates", "the whole run",
       "Length of the decay to the minimum, from the start of training.", "decay"},
      {MEGATRON_KEY(learning_rate, decay_samples), noted(from_to(1, kMaxSamples), one_decay), "samples",
       "the whole run", "The same in samples.", "decay"},
      {MEGATRON_KEY(learning_rate, decay_tokens), noted(from_to(1, kMaxTokens), one_decay), "tokens", "the whole run",
       "The same in tokens.", "decay"},
      {MEGATRON_KEY(learning_rate, wsd_decay_steps), noted(from_to(1, kMaxSteps), one_wsd), "updates", "none",
       "Length of the decay at the end with \"wsd\". Between warm-up and decay the rate stays at the peak.", "wsd"},
      {MEGATRON_KEY(learning_rate, wsd_decay_samples), noted(from_to(1, kMaxSamples), one_wsd), "samples", "none",
       "The same in samples.", "wsd"},
      {MEGATRON_KEY(learning_rate, wsd_decay_tokens), noted(from_to(1, kMaxTokens), one_wsd), "tokens", "none",
       "The same in tokens.", "wsd"},
      {MEGATRON_KEY(learning_rate, wsd_style), one_of({"linear", "cosine", "exponential", "minus_sqrt"}), "", "",
       "Shape of that decay. With r from 0 to 1 over it, linear: 1 - r, cosine: (1 + cos πr) / 2, exponential: 2 "
       "· 0.5^r - 1, minus_sqrt: 1 - √r.",
       ""},
  };
}

std::vector<Key> run_keys() {
  return {
      {MEGATRON_KEY(data, train), path(), "", "required",
       "Training data: the prefix that megatron_preprocess --output was given; a folder, for all sets in it; a "
       "pattern with *, ? or [a-z], for the shards that match; or an array of several of these as path or {path, "
       "weight}, which makes a blend. Without weights each gives the same number of samples "
       "(docs/sample_order.md).",
       ""},
      {MEGATRON_KEY(data, validation), path(), "", "by split", "Separate data for validation, in the same forms.", ""},
      {MEGATRON_KEY(data, test), path(), "", "by split", "Separate data for the test at the end, in the same forms.",
       ""},
      {MEGATRON_KEY(data, split), noted(any(), "up to three numbers, at least 0, the first above 0"), "shares", "",
       "Shares of data.train for training, validation and test. Each set of a blend is divided separately.", ""},
      {MEGATRON_KEY(data, split_by), one_of({"auto", "documents", "tokens"}), "", "",
       "Unit of data.split. auto: tokens for a set of fewer than 1000 documents, else whole documents; with "
       "Megatron's orders always documents (docs/sample_order.md).",
       ""},
      {MEGATRON_KEY(data, order), one_of({"epoch", "megatron", "megatron_core"}), "", "",
       "Order of the samples. epoch: shuffled by (seed, epoch) alone. megatron: the order of Megatron-LM of "
       "November 2022 for the same documents, split, seed, sequence length and sample count. megatron_core: that "
       "of megatron-core 0.16. With these two a run can move here from Megatron; validation is shuffled, and "
       "each evaluation continues after the one before (docs/sample_order.md).",
       ""},
      {MEGATRON_KEY(data, order_samples), noted(from_to(1, kMaxSamples), "with Megatron's orders only"), "samples",
       "the run's", "Sample count that Megatron's order is made for, if the run is shorter or longer.", ""},
      {MEGATRON_KEY(data, reset_attention_mask), any(), "", "",
       "Tokens attend only within their own document. Here and in the next two keys, a document ends with the "
       "end-of-document token that megatron_preprocess appends.",
       ""},
      {MEGATRON_KEY(data, reset_position_ids), any(), "", "", "Positions start again with each document.", ""},
      {MEGATRON_KEY(data, eod_mask_loss), any(), "", "",
       "No loss for the token after the end of a document, which cannot be predicted. The mean is over the other "
       "targets of the global batch.",
       ""},
      {MEGATRON_KEY(data, mask_probability), noted(above_to(0, 1), "with family \"bert\" only"), "", "",
       "Share of a sample's tokens that the model is to predict, in whole words.", ""},
      {MEGATRON_KEY(data, short_probability), noted(from_to(0, 1), "with family \"bert\" only"), "", "",
       "Share of samples that are made shorter than model.sequence_length, down to two tokens.", ""},
      {MEGATRON_KEY(evaluation, tasks), noted(any(), "each with another name; stride at most model.sequence_length"),
       "", "none",
       "Evaluation tasks: [{name = \"wiki\", task = \"wikitext\", data = \"wiki.valid.tokens\", every = 1000}]. task "
       "is "
       "wikitext, lambada or choices, data its file, every the interval in updates (0, the default: only at the end; "
       "all are done at the end), name what metrics and log call it (default: the task). wikitext also has stride, "
       "lambada strict.",
       ""},
      {MEGATRON_KEY_IN(checkpoint, every_steps, checkpoint), from_to(0, kMaxSteps), "updates", "",
       "Interval between checkpoints; the last step is always saved as well. 0: only the last step. \"never\": no "
       "checkpoint is written and the trained model is lost at the end; only a run that is stopped early still "
       "saves, so that it can be resumed.",
       ""},
      {MEGATRON_KEY(checkpoint, every_minutes), noted(from_to(0, 1e9), "not together with every_steps = \"never\""),
       "minutes", "", "Maximum time between checkpoints, in addition. 0: no limit.", ""},
      {MEGATRON_KEY(checkpoint, keep_last), from_to(0, kMaxExtent), "checkpoints", "",
       "Number of checkpoints to keep; older ones are removed. 0: keep all.", ""},
      {MEGATRON_KEY(checkpoint, resume), any(), "", "",
       "Resume from this run's newest checkpoint. false: refuse a directory that has one.", ""},
      {MEGATRON_KEY(checkpoint, load), path(), "", "none", "Start from another run's checkpoint, optimizer included.",
       ""},
      {MEGATRON_KEY(checkpoint, initialize_from), noted(path(), "not together with load"), "", "none",
       "Start from the weights of a checkpoint; ignored once this run has its own checkpoint. "
       "sequence_length, rotary_base and rotary_scaling may differ, to extend the context.",
       ""},
      {MEGATRON_KEY(checkpoint, async), any(), "", "",
       "Write checkpoints in the background. The next update waits until they are copied into reserved memory: "
       "on each rank what it saves, in all 12 bytes per parameter with AdamW. A save that comes while one is "
       "being written waits for it. The last save, and one before a stop, are not in the background.",
       ""},
      {MEGATRON_KEY(run, directory), path(), "", "", "Folder for everything that the run writes.", ""},
      {MEGATRON_KEY(run, device), one_of({"auto", "cpu", "cuda"}), "", "",
       "Where to compute. auto: on CUDA devices if this build has the backend and every rank sees one.", ""},
      {MEGATRON_KEY(run, communication), one_of({"auto", "mpi", "nccl"}), "", "",
       "What moves tensors between ranks. auto: NCCL if each rank has its own CUDA device, else MPI.", ""},
      {MEGATRON_KEY(run, threads), from_to(1, 1024), "threads per rank", "",
       "CPU threads. Two runs with the same number have the same bits; with another they agree to rounding.", ""},
      {MEGATRON_KEY(run, log_every), from_to(1, kMaxSteps), "updates", "",
       "Interval between progress lines. The loss of a line is the mean since the line before.", ""},
      {MEGATRON_KEY(run, metrics_every), from_to(0, kMaxSteps), "updates", "",
       "Interval between training lines in metrics.jsonl, which hold means in the same way. 1: every step; 0: as "
       "log_every.",
       ""},
      {MEGATRON_KEY(run, max_minutes), from_to(0, 1e9), "minutes", "",
       "Time limit: save and stop (exit code 75) before the program has run this long. 0: no limit.", ""},
      {MEGATRON_KEY(run, hang_minutes), from_to(0, 1e6), "minutes", "",
       "Maximum time of a rank in one operation, such as one communication or writing one file. After it the "
       "program prints what each rank is doing and ends with exit code 6. 0: no limit.",
       ""},
  };
}

#undef MEGATRON_KEY
#undef MEGATRON_KEY_IN

std::vector<Key> all_keys() {
  std::vector<Key> result;
  for (auto part : {model_keys(), parallel_keys(), train_keys(), recipe_keys(), run_keys()}) {
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

}  // namespace

std::span<const Key> schema() {
  static const std::vector<Key> keys = all_keys();
  return keys;
}

std::span<const TableDescription> schema_tables() {
  static constexpr std::array<TableDescription, 12> tables = {{
      {"model", "The transformer."},
      {"parallel", "How ranks share the work. The number of ranks is tensor × context × data × pipeline."},
      {"train", "Length of the run, batches, evaluation."},
      {"loss", "What is minimised."},
      {"precision", "Number formats."},
      {"recompute", "Memory for time."},
      {"optimizer", "How parameters are updated."},
      {"learning_rate",
       "Learning rate over the run. The rate of an update counts the batch being applied. Schedules count samples; "
       "with "
       "train.curriculum they count tokens if the run's length or one of the lengths below is in tokens."},
      {"data", "Training, validation and test data."},
      {"evaluation", "Tasks that the model is evaluated on while it is trained: docs/evaluation.md."},
      {"checkpoint", "What is saved, and what a run starts from."},
      {"run", "Directory, device, threads, reports, limits."},
  }};
  return tables;
}

const Key* find_key(std::string_view table, std::string_view name) {
  for (const Key& key : schema()) {
    if (key.table == table && key.name == name) return &key;
  }
  return nullptr;
}

}  // namespace megatron
