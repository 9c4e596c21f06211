// Keys of what is trained how: length and batches, loss, precision, memory, optimizer, learning rate.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/core/role.h"
#include "config/schema/schema_keys.h"
#include "config/schema/update_rules.h"

namespace megatron {

using namespace constraints;

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
             "every length a multiple of parallel.tensor with sequence_parallel; not together with batch_ramp_up")
           .with("model.family", {"gpt"}),
       "tokens, updates", "none",
       "Start with short sequences and leave out the rest of each sample. {schedule = \"fixed_linear\", start, "
       "steps, multiple = 8} grows from start to model.sequence_length within the given steps, in multiples; "
       "\"fixed_root\" does so with root_degree = 2. {schedule = \"fixed_discrete\", lengths, until} uses lengths[i] "
       "up to step until[i], then the last. Evaluation uses full length (docs/training.md).",
       ""},
      {MEGATRON_KEY(train, seed), from_to(0, 9e18), "", "", "Seed of initial weights, dropout and sample order.", ""},
      {MEGATRON_KEY_IN(train, evaluate_every, train), from_to(0, kMaxSteps), "updates", "",
       "Interval between evaluations on the validation split. \"epoch\": once per pass; 0: only at the end. Where "
       "task.name is \"classification\" or \"multiple_choice\", and train.epochs and data.validation are given, "
       "\"epoch\" is the default.",
       ""},
      {MEGATRON_KEY(train, evaluate_at_start), any(), "", "",
       "Also evaluate before the first update: the validation split, and the tasks with an interval.", ""},
      {MEGATRON_KEY(train, evaluate_steps), from_to(1, kMaxSteps), "batches", "",
       "Batches per evaluation, of each set that has a name.", ""},
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

namespace {

/// The rules' own.
std::string_view momentum_defaults() {
  static const std::string text = [] {
    std::vector<std::string> parts;
    for (const std::string& name : update_rules_with("momentum")) {
      parts.push_back(fmt::format("{} with \"{}\"", row_named(kUpdateRules, name).momentum, name));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }();
  return text;
}

}  // namespace

std::vector<Key> recipe_keys() {
  const auto of_rules = [](const Constraint& constraint, std::string_view key) {
    return constraint.with("optimizer.name", update_rules_with(key));
  };
  const std::string one_warmup =
      "at most one way to say the warm-up; shorter than the decay (in a run that is too short: shortened to a tenth)";
  const std::string one_wsd = "one of the three; with the warm-up no longer than the decay length";
  const std::string dynamic = "for the dynamic loss scale: compute = \"fp16\", loss_scale = 0";
  const Constraint powers = from_to(0x1p-20, kMaxLossScale);
  const std::string one_decay = "at most one way to say the decay length";
  return {
      {MEGATRON_KEY(loss, name), one_of(names_of(kLossNames)).with("model.family", {"gpt"}), "", "",
       "What is minimised. language_model: the mean cross entropy of all targets. key_tokens: the mean over "
       "samples of their own mean times 1 + alpha · (how many of the sample's sequence_length + 1 tokens are "
       "among token_ids). Evaluations always use language_model. docs/losses.md says how to add a loss.",
       ""},
      {MEGATRON_KEY(loss, token_ids),
       noted(from_to(0, kMaxVocabulary - 1), "each once, within the vocabulary; name \"key_tokens\" needs them")
           .with("loss.name", {"key_tokens"}),
       "", "none", "Tokens that give a sample more weight.", ""},
      {MEGATRON_KEY(loss, alpha), in_fp32(from_to(0, 1e6)).with("loss.name", {"key_tokens"}), "", "",
       "Additional weight for each occurrence.", ""},
      {MEGATRON_KEY(precision, compute), one_of({"fp32", "bf16", "fp16"}), "", "",
       "Type of values and activations; sums, norms, losses and the optimizer's master copy are always fp32.", ""},
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
      {MEGATRON_KEY(recompute, mode), one_of(names_of(kRecomputeModes)), "", "",
       "Which activations the backward pass computes again instead of keeping them. full: all of a layer but its "
       "input. selective: recompute.parts of every layer. The results have the same bits.",
       ""},
      {MEGATRON_KEY(recompute, layers), from_to(1, kMaxExtent).with("recompute.mode", {"full"}), "layers",
       "all of them",
       "How many layers of each model chunk (of a stage or virtual stage) are recomputed, from the first on. The "
       "others keep their activations. If it is more than a chunk has, the whole chunk is recomputed.",
       ""},
      {MEGATRON_KEY(recompute, parts), noted(any(), "each once").with("recompute.mode", {"selective"}), "",
       "[\"norms\", \"activations\"]",
       "What a layer does not keep. norms: outputs of norms; they are normalised again. activations: outputs of GELU, "
       "SwiGLU and so on; the function is computed again. feed_forward: the product of the feed-forward part's first "
       "matrix, too; it is multiplied again, which contains activations. Experts are feed-forward parts as well. "
       "--dry-run says what each saves and costs.",
       ""},
      {MEGATRON_KEY(optimizer, name), one_of(names_of(kUpdateRules)), "", "",
       "The optimizer. \"muon\" is Muon for hidden matrices, each query, key, value, gate and expert by itself, and "
       "AdamW for all other parameters.",
       ""},
      {MEGATRON_KEY_IN(optimizer, betas, optimizer), of_rules(in_fp32(below_one()), "betas"), "", "",
       "With \"adamw\" the decay rates of its two moments. With \"lion\" those of the mean whose sign is the update, "
       "and of the momentum that is kept; the authors of Lion use [0.9, 0.99].",
       ""},
      {MEGATRON_KEY(optimizer, momentum), of_rules(in_fp32(below_one()), "momentum"), "", momentum_defaults(),
       "Momentum of SGD or Muon. 0: none.", ""},
      {MEGATRON_KEY(optimizer, nesterov), of_rules(any(), "nesterov"), "", "",
       "Muon looks ahead: it follows momentum · m + (1 - momentum) · gradient, where it would follow the momentum m.",
       ""},
      {MEGATRON_KEY(optimizer, muon_scale), of_rules(one_of(names_of(kMuonScales)), "muon_scale"), "", "",
       "Factor of Muon's update of a matrix [out, in]. spectral: √(max(1, out / in)). match_adam_rms: 0.2 · √(max(out, "
       "in)), an update as large as AdamW's, so that its learning rates and weight decay fit.",
       ""},
      {MEGATRON_KEY(optimizer, adamw_learning_rate_factor), of_rules(in_fp32(above(0)), "adamw_learning_rate_factor"),
       "", "", "The learning rate of the parameters that \"muon\" leaves to AdamW, as a multiple of [learning_rate].",
       ""},
      {MEGATRON_KEY(optimizer, epsilon), of_rules(in_fp32(above(0)), "epsilon"), "", "",
       "Added to the square root of AdamW's second moment.", ""},
      {MEGATRON_KEY(optimizer, weight_decay), in_fp32(at_least(0)), "", "",
       "Weight decay: decoupled from the gradient with \"adamw\", \"lion\" and \"muon\", part of the gradient (L2) "
       "with \"sgd\". Biases and normalizations do not decay.",
       ""},
      {MEGATRON_KEY(optimizer, weight_decay_schedule), one_of({"constant", "linear", "cosine"}), "", "",
       "Shape of the change from weight_decay to weight_decay_end over the samples of the run. That of a group changes "
       "in the same proportion.",
       ""},
      {MEGATRON_KEY(optimizer, weight_decay_end),
       noted(in_fp32(at_least(0)), "with weight_decay_schedule \"linear\" or \"cosine\", which need it"), "", "none",
       "Weight decay at the last step.", ""},
      {MEGATRON_KEY(optimizer, clip_grad_norm), in_fp32(at_least(0)), "", "",
       "Maximum norm of the whole gradient. 0: no clipping.", ""},
      {MEGATRON_KEY(optimizer, scaling), noted(one_of(names_of(kScalings)), "\"mup\" needs model.base_hidden_size"), "",
       "",
       "Whether learning rates and initial weights are for the width of this model, or \"mup\": for that of "
       "model.base_hidden_size, from which they are carried over to this one by maximal update parametrization. With "
       "\"adamw\" and \"lion\" the rates of hidden matrices are divided by m, how many times wider the model is. A "
       "weight decay is divided by the factor of its rate, so that their product is the same at every width.",
       ""},
      {MEGATRON_KEY(optimizer, moments_dtype), one_of({"fp32", "bf16"}), "", "",
       "Type of the optimizer's states: the moments m and v of AdamW, the momentum m of others. bf16 halves their "
       "memory. They are rounded up or down by chance, so that small changes add up; the chance depends on train.seed, "
       "the update and the element alone, as in every layout and after a resume. Checkpoints hold fp32 numbers either "
       "way, and a run may be resumed with the other type.",
       ""},
      {MEGATRON_KEY(optimizer, share), one_of(names_of(kShares)), "", "",
       "What context × data ranks divide among them. \"state\": the optimizer's state (ZeRO-1). Gradients are then "
       "always reduce-scattered during the backward pass, independent of `parallel.overlap_gradients`; with Muon and "
       "many more data ranks than layers they are all-reduced. \"gradients\": also the gradients of layers (ZeRO-2), "
       "which are reduce-scattered with each micro-batch; of two layers alone they are whole at a time. \"weights\": "
       "also the weights of layers (ZeRO-3), which are gathered before each forward and backward, under the layer "
       "before. The last two not with \"zero_bubble\" or Muon, \"weights\" not with `parallel.pipeline` "
       "(docs/memory.md).",
       ""},
      {MEGATRON_KEY(optimizer, share_within),
       noted(from_to(0, kMaxExtent).with("optimizer.share", {"state", "gradients", "weights"}), "0, or 2 and more"),
       "ranks", "all",
       "The number of context × data ranks, next to each other, that divide it among them where not all do (hybrid "
       "sharding). Each set of this number has the whole. With the ranks of a node over `parallel.tensor`, layers are "
       "gathered within nodes, and between nodes only sums of parts travel, once a step. 0: all.",
       ""},
      {MEGATRON_KEY(optimizer, offload), one_of({"none", "host", "file"}), "", "",
       "Where the optimizer's states and fp32 master weights live. none: in the memory of the device. host: on a GPU, "
       "in the host's pinned memory, which the update reads and writes there. file: on a CPU, in a file of each rank, "
       "for a model whose state memory does not hold; each step reads and writes all of it. Numbers are the same to "
       "the bit, and a run may be resumed with another value (docs/memory.md).",
       ""},
      {MEGATRON_KEY(optimizer, offload_fraction), above_to(0, 1).with("optimizer.offload", {"host", "file"}), "", "",
       "How much of that is offloaded, at least: whole tensors, beginning with the last layer.", ""},
      {MEGATRON_KEY(optimizer, offload_folder),
       noted(path(), "an existing folder, on every node").with("optimizer.offload", {"file"}), "", "run.directory",
       "Folder of the files: on a local disk of each node, with room for its ranks' states. The files have no names "
       "and are gone when the run ends, however it ends.",
       ""},
      {MEGATRON_KEY_IN(optimizer, groups, optimizer_groups),
       noted(any(), fmt::format("each with names or roles, or both; roles: {}", fmt::join(names_of(kRoles), ", "))), "",
       "none",
       "Parameters that are updated in their own way: [{roles = [\"embedding\", \"head\"], learning_rate_factor = 0.5, "
       "weight_decay = 0.0}]. A group selects the parameters of its roles whose names are like one of its names "
       "(\"layers.*.attention.*\"); the first that selects a parameter has it. The learning rate is multiplied by "
       "learning_rate_factor (0: these parameters stay as they are). weight_decay is for all of the group, biases too. "
       "name, another optimizer, and the keys that go with it are as above; those that are not given are as in "
       "[optimizer] (docs/training.md).",
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
      {MEGATRON_KEY(learning_rate, wsd_decay_steps),
       noted(from_to(1, kMaxSteps), one_wsd).with("learning_rate.decay", {"wsd"}), "updates", "none",
       "Length of the decay at the end with \"wsd\". Between warm-up and decay the rate stays at the peak.", "wsd"},
      {MEGATRON_KEY(learning_rate, wsd_decay_samples),
       noted(from_to(1, kMaxSamples), one_wsd).with("learning_rate.decay", {"wsd"}), "samples", "none",
       "The same in samples.", "wsd"},
      {MEGATRON_KEY(learning_rate, wsd_decay_tokens),
       noted(from_to(1, kMaxTokens), one_wsd).with("learning_rate.decay", {"wsd"}), "tokens", "none",
       "The same in tokens.", "wsd"},
      {MEGATRON_KEY(learning_rate, wsd_style), one_of({"linear", "cosine", "exponential", "minus_sqrt"}), "", "",
       "Shape of that decay. With r from 0 to 1 over it, linear: 1 - r, cosine: (1 + cos πr) / 2, exponential: 2 "
       "· 0.5^r - 1, minus_sqrt: 1 - √r.",
       ""},
  };
}

}  // namespace megatron
