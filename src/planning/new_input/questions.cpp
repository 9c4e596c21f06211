#include "planning/new_input/questions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "base/core/error.h"
#include "config/schema/schema.h"
#include "planning/layout_search/hardware.h"
#include "planning/new_input/layouts.h"
#include "planning/new_input/question_of_key.h"
#include "training/step/compute.h"

namespace megatron {

namespace {

constexpr int kMostRanks = 1 << 20;
constexpr std::int64_t kUsualSteps = 1000;
constexpr std::int64_t kTokensOfStep = 1 << 11, kTokensOfPresetsStep = 1 << 19;

bool on_cuda(const Draft& draft) {
  return choose_planned_device(draft.config.run).device_choice() == DeviceChoice::cuda;
}
bool decays(const Draft& draft) {
  const std::string& decay = draft.config.learning_rate.decay;
  return decay != "constant" && decay != "inverse_sqrt";
}

// ---- Machine ----

std::string read_ranks(const std::string& answer, Draft& draft) {
  int ranks = 0;
  const auto [end, error] = std::from_chars(answer.data(), answer.data() + answer.size(), ranks);
  if (error == std::errc() && end == answer.data() + answer.size() && ranks >= 1 && ranks <= kMostRanks) {
    draft.ranks = ranks;
    return "";
  }
  return fmt::format("ranks = {} is not a whole number from 1 to {}", answer, kMostRanks);
}

std::string read_hardware_name(const std::string& answer, Draft& draft) {
  try {
    if (answer != kOtherHardware) read_hardware(answer);
  } catch (const Error& error) {
    return error.what();
  }
  draft.hardware = answer;
  return "";
}

void add_machine(std::vector<Question>& all) {
  const std::string section = "Machine";
  all.push_back(about(section, "run.device"));
  all.push_back({.section = section,
                 .name = "ranks",
                 .text = "Processes that share the run, on CUDA devices one for each device",
                 .kind = "integer",
                 .help =
                     [](const Draft&) {
                       return std::string(
                           "The launcher starts this number of ranks; it is not part of the input file. The next "
                           "questions are about how they share the run.");
                     },
                 .propose = [](Draft& draft) { draft.ranks = 1; },
                 .read = read_ranks,
                 .value = [](const Draft& draft) { return std::to_string(draft.ranks); }});
  std::vector<std::string_view> names;
  for (const ShippedFile& hardware : shipped_hardware()) names.push_back(hardware.name);
  all.push_back({.section = section,
                 .name = "hardware",
                 .text = "Hardware that the layout is planned for",
                 .kind = fmt::format("{}, a path or {}", fmt::join(names, ", "), kOtherHardware),
                 .help =
                     [](const Draft&) {
                       return fmt::format(
                           "megatron_plan proposes the fastest layout on it. A path names a file such as "
                           "inputs/hardware/h100-sxm.toml. {}: the proposal knows only the rules.",
                           kOtherHardware);
                     },
                 .asked = on_cuda,
                 .propose = [first = std::string(names.front())](Draft& draft) { draft.hardware = first; },
                 .read = read_hardware_name,
                 .value = [](const Draft& draft) { return draft.hardware; }});
}

// ---- Length, batches, learning rate ----

void propose_batch(Draft& draft) {
  const std::int64_t tokens = has_own_sizes(draft) ? kTokensOfStep : kTokensOfPresetsStep;
  const std::int64_t samples = std::max<std::int64_t>(1, tokens / draft.config.model.sequence_length);
  draft.config.train.global_batch_size = (samples + draft.ranks - 1) / draft.ranks * draft.ranks;
}

/// The names of the keys that say it.
std::vector<std::string> length_keys() {
  std::vector<std::string> names;
  for (const Key& key : schema()) {
    if (key.group == "duration") names.emplace_back(key.name);
  }
  return names;
}

std::string read_length(const std::string& answer, Draft& draft) {
  const std::vector<std::string> names = length_keys();
  if (std::find(names.begin(), names.end(), answer) == names.end()) {
    return fmt::format("\"{}\" is not one of {}", answer, fmt::join(names, ", "));
  }
  draft.length = answer;
  return "";
}

void propose_length(Draft& draft) {
  TrainConfig& train = draft.config.train;
  const std::int64_t samples = kUsualSteps * train.global_batch_size;
  if (draft.length == "steps") train.steps = kUsualSteps;
  if (draft.length == "samples") train.samples = samples;
  if (draft.length == "tokens") train.tokens = samples * draft.config.model.sequence_length;
  if (draft.length == "epochs") train.epochs = 1;
}

/// A tenth of the run.
std::int64_t usual_interval(const Draft& draft) {
  const std::int64_t steps = draft.config.train.steps;
  return steps > 0 ? std::max<std::int64_t>(1, steps / 10) : kUsualSteps / 10;
}

void add_length(std::vector<Question>& all) {
  const std::string section = "Batches and length";
  all.push_back(with_default(about(section, "train.global_batch_size"), propose_batch));
  all.push_back({.section = section,
                 .name = "length",
                 .text = "What the length of the run is given in",
                 .kind = fmt::format("{}", fmt::join(length_keys(), ", ")),
                 .help =
                     [](const Draft&) {
                       std::string text;
                       for (const Key& key : schema()) {
                         if (key.group != "duration") continue;
                         text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", key.name, key.help);
                       }
                       return text;
                     },
                 .read = read_length,
                 .value = [](const Draft& draft) { return draft.length; }});
  for (const std::string& name : length_keys()) {
    all.push_back(with_default(
        if_asked(about(section, "train." + name), [name](const Draft& draft) { return draft.length == name; }),
        propose_length));
  }
  all.push_back(with_default(about(section, "train.evaluate_every"),
                             [](Draft& draft) { draft.config.train.evaluate_every = usual_interval(draft); }));
}

void add_learning_rate(std::vector<Question>& all) {
  const std::string section = "Learning rate";
  all.push_back(with_default(about(section, "learning_rate.peak"), [](Draft& draft) {
    if (has_own_sizes(draft))
      draft.config.learning_rate.peak = 1e-3;  // the schema's is for models of the presets' size
  }));
  all.push_back(about(section, "learning_rate.decay"));
  all.push_back(with_default(if_asked(about(section, "learning_rate.minimum"), decays), [](Draft& draft) {
    LearningRateConfig& rate = draft.config.learning_rate;
    rate.minimum = std::strtod(fmt::format("{:.4g}", rate.peak / 10).c_str(), nullptr);  // 3e-4, not 2.9999999e-4
  }));
  all.push_back(with_default(if_asked(about(section, "learning_rate.wsd_decay_steps"),
                                      [](const Draft& draft) { return draft.config.learning_rate.decay == "wsd"; }),
                             [](Draft& draft) { draft.config.learning_rate.wsd_decay_steps = usual_interval(draft); }));
  all.push_back(with_default(about(section, "learning_rate.warmup_fraction"),
                             [](Draft& draft) { draft.config.learning_rate.warmup_fraction = 0.05; }));
}

// ---- Layout ----

Question layout_question(std::string_view name) {
  return with_default(about("Layout", std::string(name)), [name](Draft& draft) { propose_layout_key(name, draft); });
}

bool is_layout_key_asked(std::string_view name, const Draft& draft) {
  const ParallelConfig& parallel = draft.config.parallel;
  if (name == "parallel.tensor" || name == "parallel.pipeline") return draft.ranks > 1;
  if (name == "parallel.sequence_parallel") return parallel.tensor > 1;
  if (name == "parallel.schedule") return parallel.pipeline > 1;
  if (name == "parallel.virtual_stages") return row_named(kSchedules, parallel.schedule).chunks;
  if (name == "optimizer.share") return draft.ranks > parallel.tensor * parallel.pipeline;
  return true;
}

void add_layout(std::vector<Question>& all) {
  Question precision = with_default(about("Precision", "precision.compute"), [](Draft& draft) {
    if (on_cuda(draft)) draft.config.precision.compute = "bf16";
  });
  precision.settle = plan_layouts;  // the last thing that a plan of the layout has to know
  all.push_back(precision);
  for (const std::string_view name : kLayoutKeys) {
    all.push_back(
        if_asked(layout_question(name), [name](const Draft& draft) { return is_layout_key_asked(name, draft); }));
  }
  all.push_back(about("Layout", "optimizer.clip_grad_norm"));
}

void add_files(const std::string& name, std::vector<Question>& all) {
  const std::string section = "Files";
  all.push_back(with_default(about(section, "checkpoint.every_steps"),
                             [](Draft& draft) { draft.config.checkpoint.every_steps = usual_interval(draft); }));
  all.push_back(about(section, "checkpoint.keep_last"));
  all.push_back(with_default(about(section, "run.directory"),
                             [name](Draft& draft) { draft.config.run.directory = "runs/" + name; }));
  all.push_back(about(section, "run.log_every"));
}

}  // namespace

std::vector<Question> questions_for(const std::string& path) {
  const std::string name = std::filesystem::path(path).stem().string();
  std::vector<Question> all;
  add_model_questions(all);
  add_data_questions(name, all);
  add_machine(all);
  add_length(all);
  add_learning_rate(all);
  add_layout(all);
  add_files(name, all);
  return all;
}

}  // namespace megatron
