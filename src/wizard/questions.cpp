#include "wizard/questions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "config/presets.h"
#include "config/print.h"
#include "config/set_value.h"
#include "data/shard_paths.h"
#include "planner/hardware.h"
#include "text/text.h"
#include "train/compute.h"
#include "train/datasets.h"
#include "wizard/layouts.h"

namespace megatron {

namespace {

constexpr int kMostRanks = 1 << 20;
constexpr std::int64_t kUsualSteps = 1000;
constexpr std::int64_t kTokensOfStep = 1 << 11, kTokensOfPresetsStep = 1 << 19;

bool always(const Draft&) {
  return true;
}
bool has_own_sizes(const Draft& draft) {
  return draft.config.model.preset.empty();
}
bool has_decoder(const Draft& draft) {
  return draft.config.model.has_decoder();
}
bool on_cuda(const Draft& draft) {
  return choose_planned_device(draft.config.run).device == "cuda";
}
bool decays(const Draft& draft) {
  const std::string& decay = draft.config.learning_rate.decay;
  return decay != "constant" && decay != "inverse_sqrt";
}

/// The first sentence, without its end.
std::string first_sentence(std::string_view help) {
  const std::size_t end = std::min({help.find(". "), help.find("; "), help.size()});
  std::string sentence(help.substr(0, end));
  if (sentence.ends_with('.')) sentence.pop_back();
  return sentence;
}

std::string without_quotes(const std::string& value) {
  const bool quoted = value.size() > 1 && value.front() == '"' && value.back() == '"';
  return quoted ? value.substr(1, value.size() - 2) : value;
}

std::string kind_of(const Key& key) {
  const auto& choices = key.constraint.choices;
  std::string kind = choices.empty() ? type_name(key) : fmt::format("{}", fmt::join(choices, ", "));
  if (!key.unit.empty()) kind += fmt::format(", {}{}", key.unit.starts_with("of ") ? "" : "in ", key.unit);
  return kind;
}

/// What the key is. Of keys that say one thing in several ways, the first one says what that is.
std::string text_of(const Key& key) {
  for (const Key& first : schema()) {
    if (!key.group.empty() && first.group == key.group) return first_sentence(first.help);
  }
  return first_sentence(key.help);
}

/// As a key of type "true or false" takes it.
std::string yes_or_no(const Key& key, const std::string& answer) {
  if (!std::holds_alternative<Access<bool>>(key.access)) return answer;
  return answer == "yes" || answer == "y" ? "true" : answer == "no" || answer == "n" ? "false" : answer;
}

/// What a key's question has where nothing else is said: always asked, with the value that the draft has already.
Question about(const std::string& section, const std::string& name) {
  const auto dot = name.find('.');
  const Key* key = find_key(name.substr(0, dot), name.substr(dot + 1));
  internal_check(key != nullptr, "a question names a key of the schema");
  return {.section = section,
          .name = name,
          .key = key,
          .text = text_of(*key),
          .kind = kind_of(*key),
          .help = [key](const Draft&) { return std::string(key->help) + "\n" + facts_of_key(*key); },
          .asked = always,
          .propose = [](Draft&) {},
          .read = [key](const std::string& answer,
                        Draft& draft) { return set_value(*key, yes_or_no(*key, answer), draft.config); },
          .value =
              [key](const Draft& draft) {
                const std::string value = print_value(*key, draft.config);
                return value.empty() ? std::string(key->absent) : without_quotes(value);
              },
          .settle = [](Draft&) { return std::string(); }};
}

template <class Asked>
Question if_asked(Question question, const Asked& asked) {
  question.asked = asked;
  return question;
}

template <class Propose>
Question with_default(Question question, const Propose& propose) {
  question.propose = propose;
  return question;
}

// ---- Model ----

std::string choose_preset(Draft& draft) {
  const ModelPreset* preset = find_preset(draft.config.model.preset);
  if (preset == nullptr) return "";
  const std::string family = draft.config.model.family;
  verify(preset->model.family == family, ErrorKind::configuration,
         "model.preset = \"{}\" is of model.family = \"{}\", not \"{}\"; answer ? for the presets of this family, or < "
         "to go back",
         preset->name, preset->model.family, family);
  apply_preset(*preset, draft.config.model);
  return fmt::format("{}: {}", preset->name, preset->note);
}

std::string presets_of_family(const Draft& draft) {
  std::string list = fmt::format("Presets of family {}:", draft.config.model.family);
  for (const ModelPreset& preset : model_presets()) {
    if (preset.model.family == draft.config.model.family)
      list += fmt::format("\n  {:<20} {}", preset.name, preset.note);
  }
  return list;
}

void propose_heads(Draft& draft) {
  const std::int64_t width = draft.config.model.hidden_size;
  constexpr std::int64_t head = 64, few = 4;
  draft.config.model.attention_heads = width % head == 0 && width / head >= few ? width / head
                                       : width % few == 0                       ? few
                                                                                : 1;
}

void add_model(std::vector<Question>& all) {
  const std::string section = "Model";
  all.push_back(about(section, "model.family"));
  Question preset = about(section, "model.preset");
  preset.kind = "name of a preset";
  preset.settle = choose_preset;
  preset.help = [of_key = preset.help](const Draft& draft) { return of_key(draft) + "\n" + presets_of_family(draft); };
  all.push_back(preset);
  const auto sizes = [&](const char* name, const auto& propose) {
    all.push_back(with_default(if_asked(about(section, name), has_own_sizes), propose));
  };
  sizes("model.layers", [](Draft& draft) { draft.config.model.layers = 4; });
  all.push_back(if_asked(about(section, "model.decoder_layers"),
                         [](const Draft& draft) { return has_decoder(draft) && has_own_sizes(draft); }));
  sizes("model.hidden_size", [](Draft& draft) { draft.config.model.hidden_size = 128; });
  sizes("model.attention_heads", propose_heads);
  all.push_back(with_default(about(section, "model.sequence_length"), [](Draft& draft) {
    if (has_own_sizes(draft)) draft.config.model.sequence_length = 128;
  }));
  all.push_back(if_asked(about(section, "model.decoder_sequence_length"), has_decoder));
}

// ---- Data ----

/// The first set of shards in the folder data, or where one for this file would lie.
void propose_data(const std::string& name, Draft& draft) {
  try {
    draft.config.data.train = Blend(find_shards("data").front().prefix);
  } catch (const Error&) {
    draft.config.data.train = Blend("data/" + name);
  }
}

/// What is missing may still be made; what is there must do.
std::string open_data(Draft& draft) {
  draft.facts.reset();
  try {
    for (const BlendPart& part : draft.config.data.train.parts) find_shards(part.path);
  } catch (const Error& error) {
    return fmt::format("warning: {}. The run can be planned without its data. To give another path, answer <",
                       error.what());
  }
  const Datasets datasets(draft.config);
  draft.facts = datasets.facts();
  std::string text = fmt::format("found: a vocabulary of {}, {} for training in each pass", draft.facts->vocab_size,
                                 counted(draft.facts->train_samples, "sample"));
  for (const std::string& note : datasets.notes()) text += "\n" + note;
  return text;
}

void add_data(const std::string& name, std::vector<Question>& all) {
  Question data = with_default(about("Data", "data.train"), [name](Draft& draft) { propose_data(name, draft); });
  data.settle = open_data;
  all.push_back(data);
  all.push_back(if_asked(about("Data", "model.vocab_size"), [](const Draft& draft) { return !draft.facts; }));
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
                 .asked = always,
                 .propose = [](Draft& draft) { draft.ranks = 1; },
                 .read = read_ranks,
                 .value = [](const Draft& draft) { return std::to_string(draft.ranks); },
                 .settle = [](Draft&) { return std::string(); }});
  std::vector<std::string_view> names;
  for (const ShippedHardware& hardware : shipped_hardware()) names.push_back(hardware.name);
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
                 .value = [](const Draft& draft) { return draft.hardware; },
                 .settle = [](Draft&) { return std::string(); }});
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
                 .asked = always,
                 .propose = [](Draft&) {},
                 .read = read_length,
                 .value = [](const Draft& draft) { return draft.length; },
                 .settle = [](Draft&) { return std::string(); }});
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
  if (name == "optimizer.distributed") return draft.ranks > parallel.tensor * parallel.pipeline;
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
  add_model(all);
  add_data(name, all);
  add_machine(all);
  add_length(all);
  add_learning_rate(all);
  add_layout(all);
  add_files(name, all);
  return all;
}

}  // namespace megatron
