// Rules about the run: length, batches, data, the grid of ranks. Of the update: update_rules.cpp; of the model:
// model_rules.cpp.
#include "config/rules/rules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/text/text.h"
#include "config/rules/exchange_rules.h"
#include "config/rules/violations.h"
#include "config/schema/split.h"

namespace megatron {
namespace {

void check_duration(const Config& c, Violations& violations) {
  const TrainConfig& t = c.train;
  std::vector<std::string> given;
  if (t.steps > 0) given.push_back(fmt::format("steps = {}", t.steps));
  if (t.samples > 0) given.push_back(fmt::format("samples = {}", t.samples));
  if (t.tokens > 0) given.push_back(fmt::format("tokens = {}", t.tokens));
  if (t.epochs > 0) given.push_back(fmt::format("epochs = {}", t.epochs));
  if (given.size() == 1) return;
  violations.add({"train.steps", "train.samples", "train.tokens", "train.epochs"},
                 "exactly one of train.steps, samples, tokens, epochs says how long to train; {}",
                 given.empty() ? "none is given" : fmt::format("given are {}", fmt::join(given, ", ")));
}

// The sizes between start and global_batch_size come out whole.
bool ramp_up_is_good(const TrainConfig& t) {
  const BatchRampUp& ramp = t.batch_ramp_up;
  return ramp.start == 0 ||
         (ramp.start < t.global_batch_size && (t.global_batch_size - ramp.start) % ramp.increment == 0);
}

void check_ramp_up(const Config& c, Violations& violations) {
  const BatchRampUp& ramp = c.train.batch_ramp_up;
  const std::int64_t whole = c.train.global_batch_size;
  constexpr std::int64_t kMostSizes = 1 << 12;
  if (whole > 0 && ramp_up_is_good(c.train) && ramp.start > 0 && (whole - ramp.start) / ramp.increment > kMostSizes) {
    violations.add(
        {"train.batch_ramp_up"},
        "train.batch_ramp_up: from start = {} to global_batch_size = {} there are {} steps of increment = {}, "
        "more than {}; raise the increment",
        ramp.start, whole, (whole - ramp.start) / ramp.increment, ramp.increment, kMostSizes);
  }
  if (whole <= 0 || ramp_up_is_good(c.train)) return;
  if (ramp.start >= whole) {
    violations.add({"train.batch_ramp_up", "train.global_batch_size"},
                   "train.batch_ramp_up.start = {} is not smaller than train.global_batch_size = {}", ramp.start,
                   whole);
    return;
  }
  violations.add(
      {"train.batch_ramp_up", "train.global_batch_size"},
      "train.batch_ramp_up: global_batch_size - start = {} - {} = {} is not divisible by increment = {}; possible: "
      "{}",
      whole, ramp.start, whole - ramp.start, ramp.increment, divisors(whole - ramp.start, ramp.increment));
}

// Lengths that are multiples of this can be cut as the layout cuts sequences.
std::int64_t sequence_unit(const Config& c) {
  const ParallelConfig& p = c.parallel;
  return std::lcm(p.sequence_parallel ? p.tensor * p.context : 1, exchange_unit(c));
}

void check_discrete_curriculum(const Config& c, Violations& violations) {
  const Curriculum& curriculum = c.train.curriculum;
  const auto& lengths = curriculum.lengths;
  const std::vector<std::string> keys = {"train.curriculum", "model.sequence_length"};
  const auto rise = [](const std::vector<std::int64_t>& values) {
    return std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
  };
  if (lengths.size() != curriculum.until.size() + 1) {
    violations.add(
        keys,
        "train.curriculum: {} lengths need {} numbers in until, the last step of each but the last; there are "
        "{}",
        lengths.size(), lengths.size() - 1, curriculum.until.size());
  } else if (!rise(lengths) || !rise(curriculum.until)) {
    violations.add(keys, "train.curriculum: lengths = [{}] and until = [{}] must both rise", fmt::join(lengths, ", "),
                   fmt::join(curriculum.until, ", "));
  } else if (lengths.back() != c.model.sequence_length) {
    violations.add(keys, "train.curriculum: the last of lengths, {}, is not model.sequence_length = {}", lengths.back(),
                   c.model.sequence_length);
  }
  for (const std::int64_t length : lengths) {
    if (length % sequence_unit(c) == 0) continue;
    violations.add({"train.curriculum", "parallel.sequence_parallel", "parallel.tensor", "parallel.context"},
                   "train.curriculum: length {} is not a multiple of {}, into which sequences are cut; nearest: {}",
                   length, sequence_unit(c), multiples_around(length, sequence_unit(c)));
    break;
  }
}

void check_curriculum(const Config& c, Violations& violations) {
  const Curriculum& curriculum = c.train.curriculum;
  if (curriculum.schedule.empty()) return;
  if (c.train.batch_ramp_up.start > 0) {
    violations.add(
        {"train.curriculum", "train.batch_ramp_up"},
        "train.curriculum and train.batch_ramp_up exclude each other: one of sequences and batches can grow");
  }
  if (c.model.sequence_length <= 0) return;
  if (curriculum.schedule == "fixed_discrete") return check_discrete_curriculum(c, violations);
  const std::vector<std::string> keys = {"train.curriculum", "model.sequence_length"};
  const std::int64_t multiple = curriculum.multiple;
  if (curriculum.start >= c.model.sequence_length) {
    violations.add(keys, "train.curriculum.start = {} is not smaller than model.sequence_length = {}", curriculum.start,
                   c.model.sequence_length);
  } else if (curriculum.start % multiple != 0 || c.model.sequence_length % multiple != 0) {
    violations.add(
        keys,
        "train.curriculum.multiple = {} does not divide both start = {} and model.sequence_length = {}; possible: {}",
        multiple, curriculum.start, c.model.sequence_length,
        divisors(std::gcd(curriculum.start, c.model.sequence_length), multiple));
  } else if (multiple % sequence_unit(c) != 0) {
    violations.add({"train.curriculum", "parallel.sequence_parallel", "parallel.tensor", "parallel.context"},
                   "train.curriculum.multiple = {} is not a multiple of {}, into which sequences are cut; nearest: {}",
                   multiple, sequence_unit(c), multiples_around(multiple, sequence_unit(c)));
  }
  if (curriculum.root_degree > kMaxRootDegree) {
    violations.add({"train.curriculum"}, "train.curriculum.root_degree = {} is above {}", curriculum.root_degree,
                   kMaxRootDegree);
  }
}

void check_saves(const Config& c, Violations& violations) {
  const CheckpointConfig& checkpoint = c.checkpoint;
  if (const double minutes = checkpoint.every_minutes.value_or(0); checkpoint.never && minutes > 0) {
    violations.add({"checkpoint.every_minutes", "checkpoint.every_steps"},
                   "checkpoint.every_minutes = {} contradicts checkpoint.every_steps = \"never\"; leave one out",
                   minutes);
  }
  if (checkpoint.keep_best && checkpoint.never) {
    violations.add({"checkpoint.keep_best", "checkpoint.every_steps"},
                   "checkpoint.keep_best = true contradicts checkpoint.every_steps = \"never\"; leave one out");
  }
  if (checkpoint.keep_best && c.train.evaluate_every == 0 && !c.train.evaluate_every_epoch) {
    violations.add({"checkpoint.keep_best", "train.evaluate_every"},
                   "checkpoint.keep_best = true compares evaluations, and train.evaluate_every = 0 makes only one, at "
                   "the end; set an interval");
  }
  if (checkpoint.consumed_samples > 0 && checkpoint.initialize_from.empty()) {
    violations.add({"checkpoint.consumed_samples", "checkpoint.initialize_from"},
                   "checkpoint.consumed_samples = {} is for a run that starts from the weights of another one; name "
                   "them with checkpoint.initialize_from",
                   checkpoint.consumed_samples);
  }
}

void check_data_and_start(const Config& c, Violations& violations) {
  if (!c.checkpoint.load.empty() && !c.checkpoint.initialize_from.empty()) {
    violations.add(
        {"checkpoint.load", "checkpoint.initialize_from"},
        "checkpoint.load (weights and optimizer) and checkpoint.initialize_from (weights only) exclude each other");
  }
  if (c.run.directory.empty()) {
    violations.add({"run.directory"}, "run.directory is empty; name a folder, such as \"runs/first\"");
  }
  check_saves(c, violations);
  if (const auto shares = parse_split(c.data.split); !shares || (*shares)[0] == 0) {
    violations.add(
        {"data.split"},
        "data.split = \"{}\" is not up to three numbers of at least 0 with commas between, the first above 0, like "
        "\"969,30,1\"",
        c.data.split);
  }
}

void check_trace(const Config& c, Violations& violations) {
  const std::vector<std::int64_t>& steps = c.run.trace_steps;
  if (steps.empty()) {
    if (c.run.trace_events != RunConfig().trace_events) {
      violations.add({"run.trace_events"}, "run.trace_events = {} has no effect without run.trace_steps",
                     c.run.trace_events);
    }
    return;
  }
  if (steps.size() != 2) {
    violations.add({"run.trace_steps"}, "run.trace_steps has {}; it is [first, last], such as [10, 12]",
                   counted(static_cast<std::int64_t>(steps.size()), "number"));
  } else if (steps[1] < steps[0]) {
    violations.add({"run.trace_steps"}, "run.trace_steps = [{}, {}]: the last step is before the first", steps[0],
                   steps[1]);
  } else if (c.train.steps > 0 && steps[1] > c.train.steps) {
    violations.add({"run.trace_steps", "train.steps"},
                   "run.trace_steps = [{}, {}]: the run ends with step {} = train.steps", steps[0], steps[1],
                   c.train.steps);
  }
}

void check_order(const Config& c, Violations& violations) {
  const DataConfig& data = c.data;
  if (data.megatrons_order() && c.train.seed > std::numeric_limits<std::uint32_t>::max()) {
    violations.add({"train.seed", "data.order"},
                   "train.seed = {} is more than 2^32 - 1, the largest that numpy's generator, and so data.order = "
                   "\"{}\", takes",
                   c.train.seed, data.order);
  }
}

void check_evaluation_tasks(const Config& c, Violations& violations) {
  const std::vector<EvaluationTaskConfig>& tasks = c.evaluation.tasks;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const EvaluationTaskConfig& task = tasks[i];
    const auto twin = std::find_if(tasks.begin(), tasks.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const EvaluationTaskConfig& other) { return other.name == task.name; });
    const std::string split = task.name.substr(0, task.name.find('/'));  // "validation/wiki" is a set of the data
    if (split == "validation" || split == "test") {
      violations.add({"evaluation.tasks"},
                     "evaluation.tasks[{}]: \"{}\" is what the {} data is called; name it another", i, task.name,
                     split);
    } else if (twin != tasks.begin() + static_cast<std::ptrdiff_t>(i)) {
      violations.add({"evaluation.tasks"},
                     "evaluation.tasks[{}] and [{}] are both called \"{}\"; give each its own name",
                     twin - tasks.begin(), i, task.name);
    }
    if (c.model.sequence_length > 0 && task.stride > c.model.sequence_length) {
      violations.add({"evaluation.tasks", "model.sequence_length"},
                     "evaluation.tasks[{}].stride = {} is above model.sequence_length = {}", i, task.stride,
                     c.model.sequence_length);
    }
  }
}

void check_batches(const Config& c, std::int64_t data, Violations& violations) {
  const TrainConfig& t = c.train;
  if (t.global_batch_size <= 0) return;
  const std::int64_t together = t.micro_batch_size * data;
  if (t.global_batch_size % together != 0) {
    violations.add({"train.global_batch_size", "train.micro_batch_size"},
                   "train.global_batch_size = {} is not a multiple of micro_batch_size {} × data {} = {}; nearest: {}",
                   t.global_batch_size, t.micro_batch_size, data, together,
                   multiples_around(t.global_batch_size, together));
    return;
  }
  const BatchRampUp& ramp = t.batch_ramp_up;
  if (ramp.start > 0 && ramp_up_is_good(t) && (ramp.start % together != 0 || ramp.increment % together != 0)) {
    violations.add(
        {"train.batch_ramp_up", "train.micro_batch_size"},
        "train.batch_ramp_up: start = {} and increment = {} are not both multiples of micro_batch_size {} × data {} "
        "= {}",
        ramp.start, ramp.increment, t.micro_batch_size, data, together);
  }
}

}  // namespace

std::int64_t ffn_hidden_size_of(const ModelConfig& model) {
  if (model.ffn_hidden_size > 0) return model.ffn_hidden_size;
  if (!model.gated()) return 4 * model.hidden_size;
  // Three matrices of 8/3 h are as many numbers as two of 4 h (Shazeer 2020).
  constexpr std::int64_t kMultiple = 64;
  return std::max<std::int64_t>(1, 8 * model.hidden_size / 3 / kMultiple) * kMultiple;
}

std::int64_t query_groups_of(const ModelConfig& model) {
  return model.query_groups > 0 ? model.query_groups : model.attention_heads;
}

std::int64_t decoder_layers_of(const ModelConfig& model) {
  return model.all_layers() - model.layers;
}

std::int64_t decoder_sequence_length_of(const ModelConfig& model) {
  if (!model.has_decoder() || model.decoder_sequence_length > 0) return model.decoder_sequence_length;
  return std::max(kFewestDecoderRows, model.sequence_length / 4);
}

std::vector<Violation> check_alone(const Config& config) {
  Violations violations;
  check_needs(config, violations);
  check_model(config, violations);
  check_bert(config, violations);
  check_t5(config, violations);
  check_moe(config, violations);
  check_task(config, violations);
  check_duration(config, violations);
  check_ramp_up(config, violations);
  check_curriculum(config, violations);
  check_update(config, violations);
  check_data_and_start(config, violations);
  check_order(config, violations);
  check_trace(config, violations);
  check_evaluation_tasks(config, violations);
  return violations.take();
}

std::vector<Violation> check_with_ranks(const Config& config, int ranks) {
  Violations violations;
  const ParallelConfig& p = config.parallel;
  // check_alone() refuses larger sizes; here their product must not overflow.
  constexpr std::int64_t kMostRanks = std::numeric_limits<int>::max();
  if (p.tensor <= 0 || p.context <= 0 || p.pipeline <= 0 || p.tensor > kMostRanks / p.context ||
      p.tensor * p.context > kMostRanks / p.pipeline) {
    violations.add({"parallel.tensor", "parallel.context", "parallel.pipeline"},
                   "tensor {} × context {} × pipeline {} is more than 2^31 ranks", p.tensor, p.context, p.pipeline);
    return violations.take();
  }
  const std::int64_t replica = p.tensor * p.context * p.pipeline;
  const std::string arithmetic = fmt::format("tensor {} × {}pipeline {}", p.tensor,
                                             p.context > 1 ? fmt::format("context {} × ", p.context) : "", p.pipeline);
  if (ranks % replica != 0) {
    const std::int64_t whole = ranks / replica * replica;
    violations.add({"parallel.tensor", "parallel.context", "parallel.pipeline"},
                   "{} cannot hold whole replicas of {} = {} ranks; start it with {} ranks{}", counted(ranks, "rank"),
                   arithmetic, replica,
                   whole > 0 ? fmt::format("{} or {}", whole, whole + replica) : fmt::format("{}", replica),
                   fmt::format(", or choose a product that divides {}: {}", ranks, divisors(ranks, replica)));
    return violations.take();
  }
  const std::int64_t data = ranks / replica;
  if (p.data > 0 && p.data != data) {
    violations.add({"parallel.data"},
                   "{} × data {} = {}, but this job has {}; start it with {}, or leave parallel.data out", arithmetic,
                   p.data, counted(replica * p.data, "rank"), ranks, counted(replica * p.data, "rank"));
    return violations.take();
  }
  if (data % p.expert != 0) {
    violations.add({"parallel.expert"},
                   "the data size is {} / ({}) = {}, which is not divisible by parallel.expert = {}; possible: {}",
                   counted(ranks, "rank"), arithmetic, data, p.expert, divisors(data, p.expert));
  }
  if (const std::int64_t within = config.optimizer.share_within, copies = p.context * data;
      within > 0 && config.optimizer.shares().state && copies % within != 0) {
    const std::int64_t least = p.context * p.expert;
    std::vector<std::int64_t> possible;
    for (std::int64_t n = least; n < copies; n += least) {
      if (n > 1 && copies % n == 0) possible.push_back(n);
    }
    violations.add({"optimizer.share_within"},
                   "optimizer.share_within = {} does not divide the context × data ranks, {} × {}, into equal sets; {}",
                   within, p.context, data,
                   possible.empty() ? "leave it out" : fmt::format("possible: {}", fmt::join(possible, ", ")));
  }
  check_batches(config, data, violations);
  return violations.take();
}

}  // namespace megatron
