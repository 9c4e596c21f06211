#include "config/parse/read_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text/expand_path.h"
#include "base/text/utf8.h"
#include "config/parse/presets.h"
#include "config/parse/read_blend.h"
#include "config/parse/read_evaluation_tasks.h"
#include "config/parse/read_parameter_groups.h"
#include "config/parse/text_checks.h"
#include "config/schema/suggestions.h"
#include "config/schema/task.h"

namespace megatron {
namespace {

/// Reads into a field by the field's type; `problem_` collects the first thing that is wrong.
class ValueReader {
 public:
  ValueReader(const toml::node& node, const Key& key) : node_(node), key_(key) {}

  std::string problem() const { return problem_; }

  void read(std::int64_t& field) { integer(node_, "", field); }
  void read(std::uint64_t& field) {
    auto value = static_cast<std::int64_t>(field);
    integer(node_, "", value);
    field = static_cast<std::uint64_t>(value);
  }
  void read(double& field) { number(node_, "", field); }
  void read(std::optional<double>& field) {
    double value = 0;
    number(node_, "", value);
    if (problem_.empty()) field = value;
  }
  void read(bool& field) {
    if (!node_.is_boolean()) return wrong_type(node_, "");
    field = node_.as_boolean()->get();
  }
  void read(std::string& field) {
    if (!node_.is_string()) return wrong_type(node_, "");
    std::string value = node_.as_string()->get();
    if (!acceptable(value)) return;
    field = std::move(value);
  }
  void read(std::vector<std::int64_t>& field) { integers(node_, "", field); }
  void read(BiasConfig& field) {
    if (node_.is_boolean()) {
      field = node_.as_boolean()->get();
      return;
    }
    for (const auto& [name, bias] : kBiasNames) {
      if (node_.value_exact<std::string>() != name) continue;
      field = bias;
      return;
    }
    wrong_type(node_, "");
  }
  void read(RotaryScalingConfig& field) {
    if (!node_.is_table()) return wrong_type(node_, "");
    const toml::table& table = *node_.as_table();
    RotaryScalingConfig scaling;
    scaling.type = table["type"].value_or(std::string());
    const bool llama3 = scaling.type == "llama3";
    if (!llama3 && scaling.type != "linear") {
      return set(fmt::format("{}.type is not one of \"linear\", \"llama3\"", name()));
    }
    for (auto&& [k, value] : table) {
      const std::string part(k.str()), label = "." + part;
      if (part == "type") continue;
      if (part == "factor") {
        number(value, label, scaling.factor);
      } else if (llama3 && part == "low_frequency_factor") {
        number(value, label, scaling.low_frequency_factor);
      } else if (llama3 && part == "high_frequency_factor") {
        number(value, label, scaling.high_frequency_factor);
      } else if (llama3 && part == "original_length") {
        integer(value, label, scaling.original_length);
      } else {
        return set(fmt::format("unknown key '{}{}'; type \"{}\" has factor{}", name(), label, scaling.type,
                               llama3 ? ", low_frequency_factor, high_frequency_factor and original_length" : ""));
      }
    }
    if (scaling.factor == 0) {
      set(fmt::format("{} needs a factor: {{type = \"{}\", factor = 8.0}}", name(), scaling.type));
    }
    if (problem_.empty()) field = std::move(scaling);
  }
  void read(BatchRampUp& field) {
    if (!node_.is_table()) return wrong_type(node_, "");
    BatchRampUp ramp;
    for (auto&& [k, value] : *node_.as_table()) {
      const std::string part(k.str());
      if (part != "start" && part != "increment" && part != "samples") {
        return set(fmt::format("unknown key '{}.{}'; it has start, increment and samples", name(), part));
      }
      integer(value, "." + part, part == "start" ? ramp.start : part == "increment" ? ramp.increment : ramp.samples);
    }
    if (ramp.start == 0 || ramp.increment == 0 || ramp.samples == 0) {
      set(fmt::format("{} needs start, increment and samples: {{start = 16, increment = 16, samples = 100000}}",
                      name()));
    }
    if (problem_.empty()) field = ramp;
  }
  void read(Curriculum& field) {
    if (!node_.is_table()) return wrong_type(node_, "");
    const toml::table& table = *node_.as_table();
    Curriculum curriculum;
    curriculum.schedule = table["schedule"].value_or(std::string());
    const bool discrete = curriculum.schedule == "fixed_discrete", root = curriculum.schedule == "fixed_root";
    if (!discrete && !root && curriculum.schedule != "fixed_linear") {
      return set(fmt::format("{}.schedule is not one of \"fixed_linear\", \"fixed_root\", \"fixed_discrete\"", name()));
    }
    const std::string_view parts = discrete ? "lengths and until"
                                   : root   ? "start, steps, multiple and root_degree"
                                            : "start, steps and multiple";
    for (auto&& [k, value] : table) {
      const std::string part(k.str()), label = "." + part;
      if (part == "schedule") continue;
      if (!discrete && part == "start") {
        integer(value, label, curriculum.start);
      } else if (!discrete && part == "steps") {
        integer(value, label, curriculum.steps);
      } else if (!discrete && part == "multiple") {
        integer(value, label, curriculum.multiple);
      } else if (root && part == "root_degree") {
        integer(value, label, curriculum.root_degree);
      } else if (discrete && (part == "lengths" || part == "until")) {
        integers(value, label, part == "lengths" ? curriculum.lengths : curriculum.until);
      } else {
        return set(
            fmt::format("unknown key '{}{}'; schedule \"{}\" has {}", name(), label, curriculum.schedule, parts));
      }
    }
    const bool complete = discrete ? !curriculum.lengths.empty() && !curriculum.until.empty()
                                   : curriculum.start > 0 && curriculum.steps > 0;
    if (!complete) {
      set(fmt::format("{} needs {}", name(),
                      discrete
                          ? "lengths and until: {schedule = \"fixed_discrete\", lengths = [64, 128], until = [1000]}"
                          : "start and steps: {schedule = \"fixed_linear\", start = 64, steps = 10000}"));
    }
    if (problem_.empty()) field = std::move(curriculum);
  }
  void read(RecomputeParts& field) {
    if (!node_.is_array()) return wrong_type(node_, "");
    RecomputeParts parts;
    for (const toml::node& node : *node_.as_array()) {
      const auto part = node.value_exact<std::string>();
      if (!part) return set(fmt::format("{} is not an {}", name(), expected_type(key_)));
      const std::vector<std::string> names = names_of(kRecomputeParts);
      const auto row = std::find(names.begin(), names.end(), *part);
      if (row == names.end()) {
        const std::string near = suggest_choice(*part, names);
        return set(fmt::format("{} has \"{}\", which is not one of \"{}\"{}", name(), *part, fmt::join(names, "\", \""),
                               near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
      }
      bool& given = parts.given[static_cast<std::size_t>(row - names.begin())];
      if (given) return set(fmt::format("{} has \"{}\" twice", name(), *part));
      given = true;
    }
    if (parts.empty()) return set(fmt::format("{} is empty; leave it out instead", name()));
    field = parts;
  }
  void read(TrainConfig& field) {  // evaluate_every
    const bool epoch = node_.is_string() && node_.as_string()->get() == "epoch";
    std::int64_t steps = 0;
    if (!epoch) integer(node_, "", steps);
    if (!problem_.empty()) return;
    field.evaluate_every = steps;
    field.evaluate_every_epoch = epoch;
  }
  void read(CheckpointConfig& field) {  // every_steps
    const bool never = node_.is_string() && node_.as_string()->get() == "never";
    std::int64_t steps = 0;
    if (!never) integer(node_, "", steps);
    if (!problem_.empty()) return;
    field.every_steps = steps;
    field.never = never;
  }
  void read(OptimizerConfig& field) {  // betas
    if (!node_.is_array() || node_.as_array()->size() != 2) return wrong_type(node_, "");
    double beta1 = 0, beta2 = 0;
    number((*node_.as_array())[0], "[0]", beta1);
    number((*node_.as_array())[1], "[1]", beta2);
    if (!problem_.empty()) return;
    field.beta1 = beta1;
    field.beta2 = beta2;
  }
  void read(Blend& field) {
    Blend blend;
    if (node_.is_array()) {
      set(megatron::read_blend(*node_.as_array(), name(), blend.parts));
    } else {
      std::string path;
      read(path);
      blend = Blend(path);
      if (problem_.empty() && blend.empty() && key_.absent == "required") set(fmt::format("{} is empty", name()));
    }
    if (problem_.empty()) field = std::move(blend);
  }
  void read(std::vector<std::string>& field) {  // task.labels
    std::vector<std::string> labels;
    if (const toml::array* const names = node_.as_array()) {
      for (const toml::node& node : *names) {
        const auto label = node.value_exact<std::string>();
        if (!label)
          return set(fmt::format("{}[{}]: expected string, got {}", name(), labels.size(), megatron::type_name(node)));
        labels.push_back(*label);
      }
      if (!in_range(static_cast<double>(labels.size()), std::to_string(labels.size()), ", how many there are,")) return;
    } else {
      if (!whole_number(node_)) return wrong_type(node_, "");
      std::int64_t count = 0;
      integer(node_, "", count);
      if (problem_.empty()) labels = numbered_labels(count);
    }
    if (problem_.empty()) field = std::move(labels);
  }
  void read(std::vector<EvaluationTaskConfig>& field) {
    if (!node_.is_array()) return wrong_type(node_, "");
    set(read_evaluation_tasks(*node_.as_array(), name(), field));
  }
  void read(std::vector<ParameterGroupConfig>& field) {
    if (!node_.is_array()) return wrong_type(node_, "");
    set(read_parameter_groups(*node_.as_array(), name(), field));
  }

 private:
  std::string name() const { return key_.full_name(); }
  void set(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  void wrong_type(const toml::node& node, const std::string& part) {
    const bool element = !part.empty();
    std::string got(megatron::type_name(node));
    if (node.is_floating_point()) got = fmt::format("number {}", node.as_floating_point()->get());
    if (node.is_string()) got = fmt::format("string \"{}\"", node.as_string()->get().substr(0, 60));
    if (node.is_array()) got = fmt::format("array of {}", node.as_array()->size());
    const bool numbers =
        std::holds_alternative<Access<OptimizerConfig>>(key_.access) ||
        (std::holds_alternative<Access<RotaryScalingConfig>>(key_.access) && part != ".original_length");
    const std::string expected = element ? (numbers ? "number" : "integer") : expected_type(key_);
    set(fmt::format("{}{}: expected {}, got {}", name(), part, expected, got));
  }

  void integer(const toml::node& node, const std::string& part, std::int64_t& field) {
    const std::optional<std::int64_t> value = whole_number(node);
    if (!value) return wrong_type(node, part);
    if (in_range(static_cast<double>(*value), std::to_string(*value), part)) field = *value;
  }

  void integers(const toml::node& node, const std::string& part, std::vector<std::int64_t>& field) {
    if (!node.is_array()) {
      return part.empty() ? wrong_type(node, part) : set(fmt::format("{}{} is not an array of integers", name(), part));
    }
    std::vector<std::int64_t> values;
    for (const toml::node& element : *node.as_array()) {
      const std::string place = fmt::format("{}[{}]", part, values.size());
      integer(element, place, values.emplace_back());
    }
    if (values.empty() && problem_.empty()) set(fmt::format("{}{} is empty; leave it out instead", name(), part));
    if (problem_.empty()) field = std::move(values);
  }

  void number(const toml::node& node, const std::string& part, double& field) {
    if (!node.is_number()) return wrong_type(node, part);
    const double value = *node.value<double>();
    if (!std::isfinite(value)) return set(fmt::format("{}{} = {} is not a finite number", name(), part, value));
    if (in_range(value, fmt::format("{}", value), part)) field = value;
  }

  bool in_range(double value, const std::string& text, const std::string& part) {
    const Constraint& c = key_.constraint;
    const bool low = value < c.minimum || (c.above_minimum && value == c.minimum);
    const bool high = value > c.maximum || (c.below_maximum && value == c.maximum);
    if (low || high) set(fmt::format("{}{} = {} is out of range: {}", name(), part, text, range_text(c)));
    const std::string lost = low || high ? "" : lost_in_use(c, value);
    if (!lost.empty()) set(fmt::format("{}{} = {} {}", name(), part, text, lost));
    return !low && !high && lost.empty();
  }

  bool acceptable(std::string& value) {
    const Constraint& c = key_.constraint;
    if (c.path) {
      const std::string trouble = expand_path(value);
      if (!trouble.empty()) set(fmt::format("{}: {}", name(), trouble));
    }
    if (!c.choices.empty() && std::find(c.choices.begin(), c.choices.end(), value) == c.choices.end()) {
      const std::string near = suggest_choice(value, c.choices);
      set(fmt::format("{} = \"{}\" is not one of \"{}\"{}", name(), value, fmt::join(c.choices, "\", \""),
                      near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
    }
    if (name() == "model.preset" && !value.empty()) name_preset(value);
    return problem_.empty();
  }

  void name_preset(std::string& value) {
    if (const ModelPreset* preset = find_preset(value)) {
      value = preset->name;
      return;
    }
    const std::string near = suggest_preset(value);
    set(fmt::format("{} = \"{}\" is no preset; {}{}", name(), value,
                    near.empty() ? "" : fmt::format("did you mean \"{}\"? ", near), kPresetList));
  }

  const toml::node& node_;
  const Key& key_;
  std::string problem_;
};

}  // namespace

std::string_view type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "table";
    case toml::node_type::array: return "array";
    case toml::node_type::string: return "string";
    case toml::node_type::integer: return "integer";
    case toml::node_type::floating_point: return "number";
    case toml::node_type::boolean: return "true or false";
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time: return "date or time";
    case toml::node_type::none: break;
  }
  return "nothing";
}

std::optional<std::int64_t> whole_number(const toml::node& node) {
  constexpr double kLargest = 9007199254740992;  // 2^53: doubles above have gaps
  if (node.is_integer()) return node.as_integer()->get();
  if (!node.is_floating_point()) return std::nullopt;
  const double value = node.as_floating_point()->get();
  if (value != std::floor(value) || std::abs(value) > kLargest) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::string read_value(const toml::node& node, const Key& key, Config& config) {
  ValueReader reader(node, key);
  std::visit([&](auto access) { reader.read(access(config)); }, key.access);
  return reader.problem();
}

}  // namespace megatron
