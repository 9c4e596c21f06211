#include "config/schema.h"

#include <array>

#include "config/constraints.h"

namespace megatron {
namespace {

using namespace constraints;

// Largest values: far above any use, small enough that no product in the program passes 2^63.
constexpr double kMaxExtent = 1 << 24;      // layers, hidden sizes, ranks, micro-batches
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
       "Sizes of a published model. Keys of the file override a preset of the file; a preset of the command line "
       "replaces "
       "the file's sizes, which the start of the run lists.",
       ""},
      {MEGATRON_KEY(model, family), one_of({"gpt", "bert", "t5"}), "", "", "Which kind of transformer.", ""},
      {MEGATRON_KEY(model, layers),
       noted(extent,
             "a multiple of parallel.pipeline × parallel.virtual_stages, unless "
             "parallel.layers_per_stage says otherwise"),
       "", "required", "Transformer layers.", ""},
      {MEGATRON_KEY(model, hidden_size), noted(extent, "a multiple of attention_heads, unless head_size is given"), "",
       "required", "Width of the hidden state.", ""},
      {MEGATRON_KEY(model, attention_heads), noted(extent, "a multiple of parallel.tensor"), "", "required",
       "Attention heads of a layer.", ""},
      {MEGATRON_KEY_IN(model, head_size, model.given_head_size), extent, "channels", "= hidden_size / attention_heads",
       "Of a query, key or value of one head.", ""},
      {MEGATRON_KEY(model, query_groups),
       noted(extent, "divides attention_heads; it and parallel.tensor divide evenly"), "", "= attention_heads",
       "Key/value heads (grouped-query attention; 1 is multi-query).", ""},
      {MEGATRON_KEY(model, attention_window), extent, "tokens", "none",
       "A token attends to this many positions up to its own (sliding window); without it to all before it.", ""},
      {MEGATRON_KEY(model, ffn_hidden_size), noted(extent, "a multiple of parallel.tensor"), "",
       "= 4 · hidden_size; with a gate 8/3 · hidden_size, down to a multiple of 64",
       "Inner width of the feed-forward part.", ""},
      {MEGATRON_KEY(model, sequence_length), extent, "tokens", "required", "Tokens of a sample.", ""},
      {MEGATRON_KEY(model, max_position_embeddings), noted(extent, "at least sequence_length"), "tokens",
       "= sequence_length", "Rows of the learned position table.", ""},
      {MEGATRON_KEY(model, vocab_size), noted(from_to(1, kMaxVocabulary), "at least the data's"), "tokens",
       "the data's", "Entries of the vocabulary. Planning without data needs it.", ""},
      {MEGATRON_KEY(model, vocab_multiple),
       noted(from_to(1, kMaxVocabulary), "padded size a multiple of parallel.tensor"), "tokens", "",
       "The vocabulary is padded to a multiple of this, whatever the tensor size; padding logits are masked.", ""},
      {MEGATRON_KEY(model, position_embedding), one_of({"learned", "rope", "alibi", "none"}), "", "",
       "How positions enter.", ""},
      {MEGATRON_KEY(model, rotary_fraction), noted(above_to(0, 1), "with position_embedding \"rope\" only"), "", "",
       "Part of each head that is rotated, from its first channel on.", ""},
      {MEGATRON_KEY(model, rotary_base), noted(in_fp32(above(1)), "with position_embedding \"rope\" only"), "", "",
       "The slowest rotation has a wavelength of about 2π times this many positions.", ""},
      {MEGATRON_KEY(model, rotary_scaling), noted(above_to(0, kMaxExtent), "with position_embedding \"rope\" only"), "",
       "none",
       "For longer sequences than the rotations were made for: {type = \"linear\", factor} divides positions; {type = "
       "\"llama3\", factor, low_frequency_factor = 1.0, high_frequency_factor = 4.0, original_length = 8192} divides "
       "those of slow rotations.",
       ""},
      {MEGATRON_KEY(model, activation), one_of({"gelu", "gelu_exact", "relu", "swiglu", "geglu"}), "", "",
       "Of the feed-forward part; gelu is the tanh form. swiglu and geglu have a gate beside it: three matrices.", ""},
      {MEGATRON_KEY(model, normalization), one_of({"layernorm", "rmsnorm"}), "", "", "Before each part of a layer.",
       ""},
      {MEGATRON_KEY(model, norm_epsilon), in_fp32(above(0)), "", "", "Added to the variance in a normalization.", ""},
      {MEGATRON_KEY(model, query_key_norm), any(), "", "",
       "Queries and keys are normalized head by head (RMSNorm with a weight), before they are rotated.", ""},
      {MEGATRON_KEY(model, residual), one_of({"sequential", "parallel", "parallel_one_norm"}), "", "",
       "What the parts of a layer read and add to. sequential: the feed-forward part reads the sum of the layer's "
       "input and attention. parallel: both parts read the layer's input, each through a norm (GPT-NeoX); "
       "parallel_one_norm: both through the same norm (Phi).",
       ""},
      {MEGATRON_KEY(model, tie_embeddings), any(), "", "", "The output projection is the token embedding.", ""},
      {MEGATRON_KEY(model, scale_embeddings), any(), "", "",
       "Word embeddings are multiplied by √hidden_size, before positions are added (Gemma).", ""},
      {MEGATRON_KEY(model, embedding_norm), any(), "", "", "Embeddings are normalized before the first layer (BLOOM).",
       ""},
      {MEGATRON_KEY(model, bias), any(), "", "",
       "Which linear layers of a block have a bias: all, none, or only those of attention, of query, key and value, "
       "or of the feed-forward part. LayerNorm has one either way, RMSNorm has none.",
       ""},
      {MEGATRON_KEY(model, head_bias), any(), "", "", "Logits have a bias (Phi).", ""},
      {MEGATRON_KEY(model, hidden_dropout), dropout(), "", "", "After embedding, attention and feed-forward.", ""},
      {MEGATRON_KEY(model, attention_dropout), dropout(), "", "", "Of the attention probabilities.", ""},
      {MEGATRON_KEY(model, init_std), in_fp32(above(0)), "", "",
       "Standard deviation of initial weights; output projections get it divided by √(2 · layers).", ""},
  };
}

std::vector<Key> parallel_keys() {
  const Constraint extent = from_to(1, kMaxExtent);
  return {
      {MEGATRON_KEY(parallel, tensor), noted(extent, "divides attention_heads, ffn_hidden_size, padded vocabulary"),
       "ranks", "", "Ranks that share each layer's matrices.", ""},
      {MEGATRON_KEY(parallel, pipeline), extent, "ranks", "", "Stages the layers are cut into.", ""},
      {MEGATRON_KEY(parallel, virtual_stages), noted(extent, "above 1 with schedule \"interleaved\" only"), "chunks",
       "", "Pieces of the model a stage holds.", ""},
      {MEGATRON_KEY(parallel, context), noted(extent, "above 1: sequence_length is a multiple of 2 · context"), "ranks",
       "", "Ranks that share each sequence.", ""},
      {MEGATRON_KEY(parallel, expert), noted(extent, "divides the data size"), "ranks", "",
       "Ranks that share the experts of a layer.", ""},
      {MEGATRON_KEY(parallel, data), noted(extent, "tensor · context · pipeline · data = ranks"), "ranks",
       "what remains of the ranks", "Replicas of the model; given, it asserts what remains.", ""},
      {MEGATRON_KEY(parallel, sequence_parallel), noted(any(), "sequence_length is a multiple of tensor"), "", "",
       "Between the tensor-parallel parts each tensor rank holds a slice of the sequence.", ""},
      {MEGATRON_KEY(parallel, schedule), one_of({"1f1b", "gpipe", "interleaved", "zero_bubble"}), "", "",
       "Order of forwards and backwards in a pipeline.", ""},
      {MEGATRON_KEY(parallel, layers_per_stage),
       noted(extent,
             "one number a stage, or with virtual_stages a chunk, in the order of the model; their sum is layers"),
       "layers", "evenly", "An uneven cut.", ""},
      {MEGATRON_KEY(parallel, overlap_gradients), any(), "", "",
       "Sum gradients over data ranks during the backward, as `optimizer.distributed` always does. The same numbers "
       "either way.",
       ""},
  };
}

std::vector<Key> train_keys() {
  const std::string exactly = "exactly one of steps, samples, tokens, epochs";
  return {
      {MEGATRON_KEY(train, steps), noted(from_to(1, kMaxSteps), exactly), "updates", "one of four",
       "Length of the run.", "duration"},
      {MEGATRON_KEY(train, samples), noted(from_to(1, kMaxSamples), exactly), "samples", "one of four",
       "Length of the run; a rest smaller than a batch is not trained.", "duration"},
      {MEGATRON_KEY(train, tokens), noted(from_to(1, kMaxTokens), exactly), "tokens", "one of four",
       "Length of the run; with a curriculum the tokens that are really used count.", "duration"},
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
       "End early, after this step, with exit code 0: the last step is saved, and every schedule stays that of the "
       "whole run. The same command with the key raised or removed continues.",
       ""},
      {MEGATRON_KEY(train, micro_batch_size), from_to(1, kMaxExtent), "samples", "",
       "Samples that go through the model together on one rank.", ""},
      {MEGATRON_KEY(train, global_batch_size), noted(from_to(1, kMaxBatch), "a multiple of micro_batch_size · data"),
       "samples", "required", "Samples of one update, over all ranks.", ""},
      {MEGATRON_KEY(train, batch_ramp_up),
       noted(from_to(1, kMaxSamples),
             "start < global_batch_size; increment divides the difference; every size on the "
             "way is a multiple of micro_batch_size · data"),
       "samples", "none", "Grow the batch from start to global_batch_size over so many samples.", ""},
      {MEGATRON_KEY(train, curriculum),
       noted(from_to(1, kMaxCurriculum),
             "every length a multiple of parallel.tensor with sequence_parallel; not together with batch_ramp_up"),
       "tokens, updates", "none",
       "Begin with short sequences, of which the rest is left out: {schedule = \"fixed_linear\", start, steps, "
       "multiple "
       "= 8} or \"fixed_root\" with root_degree = 2 as well grow from start to model.sequence_length within so many "
       "steps, in multiples; {schedule = \"fixed_discrete\", lengths, until} has lengths[i] up to step until[i], then "
       "the last. Evaluation is at full length (docs/training.md).",
       ""},
      {MEGATRON_KEY(train, seed), from_to(0, 9e18), "", "", "Of initial weights, dropout and sample order.", ""},
      {MEGATRON_KEY_IN(train, evaluate_every, train), from_to(0, kMaxSteps), "updates", "",
       "Evaluate on the validation split so often; \"epoch\": once a pass over the data; 0: only at the end.", ""},
      {MEGATRON_KEY(train, evaluate_steps), from_to(1, kMaxSteps), "batches", "", "Batches of one evaluation.", ""},
      {MEGATRON_KEY(train, max_skipped_steps), from_to(1, kMaxSteps), "updates", "",
       "A step whose loss or gradient is not finite is skipped on all ranks: its samples are passed over and the "
       "learning rate moves on, parameters and moments stay. After so many in a row the run ends with 5. Where a "
       "dynamic "
       "loss scale is still on its way down, the last of these is repeated at the smallest one: if its gradient is "
       "finite there, the search goes on and counting begins anew.",
       ""},
      {MEGATRON_KEY(train, check_replicas_every), from_to(0, kMaxSteps), "updates", "",
       "Compare the copies of parameters that ranks hold so often, and before each save: ones that differ (a fault of "
       "memory, a processor or the network) are named, and the run ends with 5; 0: never.",
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
      {MEGATRON_KEY(loss, name), one_of({"language_model", "key_tokens"}), "", "",
       "What is minimised: the mean cross entropy of all targets, or key_tokens: the mean over samples of their own "
       "mean "
       "times 1 + alpha · (how many of the sample's sequence_length + 1 tokens are among token_ids). Evaluations are "
       "always the former. Where a loss of one's own goes: docs/losses.md.",
       ""},
      {MEGATRON_KEY(loss, token_ids),
       noted(from_to(0, kMaxVocabulary - 1), "each once, within the vocabulary; name \"key_tokens\" needs them"), "",
       "none", "Tokens whose samples count more.", ""},
      {MEGATRON_KEY(loss, alpha), noted(in_fp32(from_to(0, 1e6)), "with name \"key_tokens\""), "", "",
       "By how much, for each occurrence.", ""},
      {MEGATRON_KEY(precision, compute), one_of({"fp32", "bf16", "fp16"}), "", "",
       "Type of values and activations; sums, norms, losses and optimizer state are always fp32.", ""},
      {MEGATRON_KEY(precision, loss_scale), in_fp32(from_to(0, kMaxLossScale)), "", "",
       "The loss is multiplied by this before the backward, and the gradient divided by it after. 0: dynamic with "
       "compute \"fp16\", else 1.",
       ""},
      {MEGATRON_KEY(precision, initial_loss_scale), noted(powers, dynamic + "; at least minimum_loss_scale"), "", "",
       "What a new run begins with; a resumed one goes on with its own.", ""},
      {MEGATRON_KEY(precision, minimum_loss_scale), noted(powers, dynamic), "", "", "It is never lowered below this.",
       ""},
      {MEGATRON_KEY(precision, loss_scale_window), noted(from_to(1, kMaxSteps), dynamic), "updates", "",
       "Doubled after so many in a row whose gradient was finite.", ""},
      {MEGATRON_KEY(precision, loss_scale_hysteresis), noted(from_to(1, kMaxSteps), dynamic), "updates", "",
       "Halved by this many whose gradient was not finite, and by each that follows until it has been doubled.", ""},
      {MEGATRON_KEY(recompute, mode), one_of({"none", "selective", "full"}), "", "",
       "Activations computed again in the backward instead of kept: none; attention's core (selective: nothing is left "
       "to do, since our kernel keeps no scores anyway); or all of a layer but its input (full). The same bits.",
       ""},
      {MEGATRON_KEY(recompute, layers), noted(from_to(1, kMaxExtent), "with mode \"full\""), "layers", "all of them",
       "The first so many layers of each model chunk (a stage's, or a virtual stage's) are recomputed, one at a time; "
       "the others keep their activations. More than a chunk has: all of it.",
       ""},
      {MEGATRON_KEY(optimizer, name), one_of({"adamw", "sgd"}), "", "", "Which optimizer.", ""},
      {MEGATRON_KEY_IN(optimizer, betas, optimizer), in_fp32(below_one()), "", "", "Decay of AdamW's two moments.", ""},
      {MEGATRON_KEY(optimizer, momentum), noted(in_fp32(below_one()), "with name \"sgd\""), "", "", "Of SGD; 0: none.",
       ""},
      {MEGATRON_KEY(optimizer, epsilon), in_fp32(above(0)), "", "", "Added to the root of the second moment.", ""},
      {MEGATRON_KEY(optimizer, weight_decay), in_fp32(at_least(0)), "", "",
       "Decoupled from the gradient with name \"adamw\"; with \"sgd\" a part of it (L2). Biases and normalizations do "
       "not decay.",
       ""},
      {MEGATRON_KEY(optimizer, weight_decay_schedule), one_of({"constant", "linear", "cosine"}), "", "",
       "How it goes from weight_decay to weight_decay_end over the samples of the run.", ""},
      {MEGATRON_KEY(optimizer, weight_decay_end),
       noted(in_fp32(at_least(0)), "with weight_decay_schedule \"linear\" or \"cosine\", which need it"), "", "none",
       "Reached with the last step.", ""},
      {MEGATRON_KEY(optimizer, clip_grad_norm), in_fp32(at_least(0)), "", "",
       "Largest norm of the whole gradient; 0: no clipping.", ""},
      {MEGATRON_KEY(optimizer, distributed), any(), "", "",
       "Share the optimizer's state among the data ranks; gradients are reduce-scattered during the backward, whatever "
       "`parallel.overlap_gradients` says.",
       ""},
      {MEGATRON_KEY(learning_rate, peak), in_fp32(above(0)), "", "", "After the warm-up.", ""},
      {MEGATRON_KEY(learning_rate, minimum), noted(in_fp32(at_least(0)), "at most peak"), "", "",
       "At the end of the decay.", ""},
      {MEGATRON_KEY(learning_rate, warmup_steps), noted(from_to(0, kMaxSteps), one_warmup), "updates", "",
       "Linear warm-up.", "warmup"},
      {MEGATRON_KEY(learning_rate, warmup_samples), noted(from_to(0, kMaxSamples), one_warmup), "samples", "",
       "The same in samples.", "warmup"},
      {MEGATRON_KEY(learning_rate, warmup_tokens), noted(from_to(0, kMaxTokens), one_warmup), "tokens", "",
       "The same in tokens.", "warmup"},
      {MEGATRON_KEY(learning_rate, warmup_fraction), noted(below_one(), one_warmup), "of the decay length", "",
       "The same as a share.", "warmup"},
      {MEGATRON_KEY(learning_rate, decay), one_of({"cosine", "linear", "constant", "inverse_sqrt", "wsd"}), "", "",
       "Shape after the warm-up.", ""},
      {MEGATRON_KEY(learning_rate, decay_steps), noted(from_to(1, kMaxSteps), one_decay), "updates", "the whole run",
       "From the start of training to the minimum.", "decay"},
      {MEGATRON_KEY(learning_rate, decay_samples), noted(from_to(1, kMaxSamples), one_decay), "samples",
       "the whole run", "The same in samples.", "decay"},
      {MEGATRON_KEY(learning_rate, decay_tokens), noted(from_to(1, kMaxTokens), one_decay), "tokens", "the whole run",
       "The same in tokens.", "decay"},
      {MEGATRON_KEY(learning_rate, wsd_decay_steps), noted(from_to(1, kMaxSteps), one_wsd), "updates", "none",
       "How long the decay at the end is; between it and the warm-up the rate stays at the peak.", "wsd"},
      {MEGATRON_KEY(learning_rate, wsd_decay_samples), noted(from_to(1, kMaxSamples), one_wsd), "samples", "none",
       "The same in samples.", "wsd"},
      {MEGATRON_KEY(learning_rate, wsd_decay_tokens), noted(from_to(1, kMaxTokens), one_wsd), "tokens", "none",
       "The same in tokens.", "wsd"},
      {MEGATRON_KEY(learning_rate, wsd_style), one_of({"linear", "cosine", "exponential", "minus_sqrt"}), "", "",
       "Shape of that decay. With r from 0 to 1 over it, linear: 1 - r, cosine: (1 + cos πr) / 2, exponential: "
       "2 · 0.5^r - 1, minus_sqrt: 1 - √r.",
       ""},
  };
}

std::vector<Key> run_keys() {
  return {
      {MEGATRON_KEY(data, train), path(), "", "required",
       "What megatron_preprocess --output made, a folder of such shards (all sets in it, by name), or a pattern of "
       "their "
       "names with *, ? or [a-z] (the shards that match, by name); or an array of several of these, each a path or "
       "{path, weight}, which make a blend: "
       "without weights each gives as many samples (docs/sample_order.md).",
       ""},
      {MEGATRON_KEY(data, validation), path(), "", "by split", "Sets of their own for validation, in the same ways.",
       ""},
      {MEGATRON_KEY(data, test), path(), "", "by split", "Sets of their own for the test at the end, in the same ways.",
       ""},
      {MEGATRON_KEY(data, split), noted(any(), "up to three numbers, at least 0, the first above 0"), "shares", "",
       "Shares of data.train for training, validation and test. Each set of a blend is cut by itself.", ""},
      {MEGATRON_KEY(data, split_by), one_of({"auto", "documents", "tokens"}), "", "",
       "Unit of data.split. auto: tokens for a set of fewer than 1000 documents, whole documents for larger ones and "
       "for "
       "Megatron's orders (docs/sample_order.md).",
       ""},
      {MEGATRON_KEY(data, order), one_of({"epoch", "megatron", "megatron_core"}), "", "",
       "epoch: shuffled by (seed, epoch) alone. megatron: the sample order of Megatron-LM of November 2022 for the "
       "same documents, split, seed, sequence length and sample count. megatron_core: the same of megatron-core 0.16. "
       "With "
       "either, a run can move here from Megatron; validation is shuffled, and each evaluation continues after the one "
       "before (docs/sample_order.md).",
       ""},
      {MEGATRON_KEY(data, order_samples), noted(from_to(1, kMaxSamples), "with Megatron's orders only"), "samples",
       "the run's", "The sample count the order is made for, where a run is to be shorter or longer than that.", ""},
      {MEGATRON_KEY(data, reset_attention_mask), any(), "", "",
       "A token attends only within its own document. Here and below, a document ends with the end-of-document token "
       "that megatron_preprocess appends, which is its last.",
       ""},
      {MEGATRON_KEY(data, reset_position_ids), any(), "", "", "Positions begin anew with each document.", ""},
      {MEGATRON_KEY(data, eod_mask_loss), any(), "", "",
       "No loss for what follows the end of a document, which nothing foretells: the mean is over the other targets of "
       "the global batch.",
       ""},
      {MEGATRON_KEY_IN(checkpoint, every_steps, checkpoint), from_to(0, kMaxSteps), "updates", "",
       "Interval between checkpoints; the last step is always saved as well. 0: only the last step. \"never\": no "
       "checkpoint is written, and the trained model is lost at the end; only a run that is stopped early still saves, "
       "so that it can be resumed.",
       ""},
      {MEGATRON_KEY(checkpoint, every_minutes), noted(from_to(0, 1e9), "not together with every_steps = \"never\""),
       "minutes", "", "Saves at least this often as well; 0: no.", ""},
      {MEGATRON_KEY(checkpoint, keep_last), from_to(0, kMaxExtent), "checkpoints", "",
       "Older ones are removed; 0: keep all.", ""},
      {MEGATRON_KEY(checkpoint, resume), any(), "", "",
       "Go on from this run's newest checkpoint; false: refuse a directory that has one.", ""},
      {MEGATRON_KEY(checkpoint, load), path(), "", "none", "Start from another run's checkpoint, optimizer included.",
       ""},
      {MEGATRON_KEY(checkpoint, initialize_from), noted(path(), "not together with load"), "", "none",
       "Start from a checkpoint's weights only; ignored once this run has a checkpoint. sequence_length, rotary_base "
       "and rotary_scaling need not be the ones the weights were trained with: so a context is extended.",
       ""},
      {MEGATRON_KEY(checkpoint, async), any(), "", "",
       "Write checkpoints beside the training, in which an update waits until they are copied into memory kept for "
       "that: on each rank what it saves, on all together 12 bytes a parameter with AdamW. A save that comes while one "
       "is being written waits for it; the last one, and one before a stop, is written at once.",
       ""},
      {MEGATRON_KEY(run, directory), path(), "", "", "Everything the run writes goes here.", ""},
      {MEGATRON_KEY(run, device), one_of({"auto", "cpu", "cuda"}), "", "",
       "Where the mathematics runs; auto: on CUDA devices where this build has the backend and every rank sees one.",
       ""},
      {MEGATRON_KEY(run, communication), one_of({"auto", "mpi", "nccl"}), "", "",
       "What moves tensors between ranks; auto: NCCL where each has a CUDA device of its own, else MPI.", ""},
      {MEGATRON_KEY(run, threads), from_to(1, 1024), "threads a rank", "",
       "Of the CPU's mathematics. With the same number two runs are bit-identical; with another they agree to "
       "rounding.",
       ""},
      {MEGATRON_KEY(run, log_every), from_to(1, kMaxSteps), "updates", "",
       "Interval between progress lines. A line's loss is the mean since the line before.", ""},
      {MEGATRON_KEY(run, metrics_every), from_to(0, kMaxSteps), "updates", "",
       "Interval between training lines in metrics.jsonl, which hold means in the same way; 1: every step; 0: as "
       "log_every.",
       ""},
      {MEGATRON_KEY(run, max_minutes), from_to(0, 1e9), "minutes", "",
       "Save and stop (exit code 75) before the program has run so long; 0: no limit.", ""},
      {MEGATRON_KEY(run, hang_minutes), from_to(0, 1e6), "minutes", "",
       "When a rank is longer in one operation (waiting in one communication, a save's file), say what all do and end "
       "with 6; 0: never.",
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
  static constexpr std::array<TableDescription, 11> tables = {{
      {"model", "The transformer."},
      {"parallel", "How ranks share the work. The number of ranks is tensor × context × data × pipeline."},
      {"train", "How long, and in what batches."},
      {"loss", "What is minimised."},
      {"precision", "Number formats."},
      {"recompute", "Memory for time."},
      {"optimizer", "The update."},
      {"learning_rate",
       "Its size over the run. The update's learning rate counts the batch being applied. It goes by samples; with "
       "train.curriculum, if the run's length or one of its own is in tokens, by tokens."},
      {"data", "What is read."},
      {"checkpoint", "What is saved, and what a run starts from."},
      {"run", "Where and with what."},
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
