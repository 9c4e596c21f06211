#include "config/schema/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/core/philox.h"
#include "config/schema/parameter_groups.h"
#include "config/schema/task.h"

namespace megatron {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\u{:04X}", byte);
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string decimal(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

struct Print {
  bool may_be_absent;  ///< zero and empty mean "not given"

  std::string operator()(const std::int64_t& value) const { return absent(value == 0) ? "" : std::to_string(value); }
  std::string operator()(const std::uint64_t& value) const { return std::to_string(value); }
  std::string operator()(const double& value) const { return absent(value == 0) ? "" : decimal(value); }
  std::string operator()(const std::optional<double>& value) const { return value ? decimal(*value) : ""; }
  std::string operator()(const bool& value) const { return value ? "true" : "false"; }
  std::string operator()(const std::string& value) const { return absent(value.empty()) ? "" : quoted(value); }
  std::string operator()(const std::vector<std::int64_t>& value) const {
    return value.empty() ? "" : fmt::format("[{}]", fmt::join(value, ", "));
  }
  std::string operator()(const BiasConfig& bias) const {
    for (const auto& [name, named] : kBiasNames) {
      if (bias == named) return quoted(std::string(name));
    }
    return bias == BiasConfig(true) ? "true" : "false";
  }
  std::string operator()(const RotaryScalingConfig& scaling) const {
    if (scaling.type.empty()) return "";
    const std::string llama3 =
        scaling.type != "llama3"
            ? ""
            : fmt::format(", low_frequency_factor = {}, high_frequency_factor = {}, original_length = {}",
                          decimal(scaling.low_frequency_factor), decimal(scaling.high_frequency_factor),
                          scaling.original_length);
    return fmt::format("{{type = {}, factor = {}{}}}", quoted(scaling.type), decimal(scaling.factor), llama3);
  }
  std::string operator()(const BatchRampUp& ramp) const {
    if (ramp.start == 0) return "";
    return fmt::format("{{start = {}, increment = {}, samples = {}}}", ramp.start, ramp.increment, ramp.samples);
  }
  std::string operator()(const Curriculum& curriculum) const {
    if (curriculum.schedule.empty()) return "";
    std::string parts;
    if (curriculum.schedule == "fixed_discrete") {
      parts = fmt::format("lengths = [{}], until = [{}]", fmt::join(curriculum.lengths, ", "),
                          fmt::join(curriculum.until, ", "));
    } else {
      parts =
          fmt::format("start = {}, steps = {}, multiple = {}", curriculum.start, curriculum.steps, curriculum.multiple);
    }
    if (curriculum.schedule == "fixed_root") parts += fmt::format(", root_degree = {}", curriculum.root_degree);
    return fmt::format("{{schedule = {}, {}}}", quoted(curriculum.schedule), parts);
  }
  std::string operator()(const RecomputeParts& parts) const { return parts.empty() ? "" : print_texts(parts.names()); }
  std::string operator()(const TrainConfig& train) const {
    return train.evaluate_every_epoch ? "\"epoch\"" : std::to_string(train.evaluate_every);
  }
  std::string operator()(const CheckpointConfig& checkpoint) const {
    return checkpoint.never ? "\"never\"" : std::to_string(checkpoint.every_steps);
  }
  std::string operator()(const OptimizerConfig& optimizer) const {
    return fmt::format("[{}, {}]", decimal(optimizer.beta1), decimal(optimizer.beta2));
  }
  std::string operator()(const Blend& blend) const {
    if (blend.empty()) return "";
    if (blend == Blend(blend.parts[0].path)) return quoted(blend.parts[0].path);
    std::vector<std::string> parts;
    for (const BlendPart& part : blend.parts) {
      parts.push_back(fmt::format("{{{}path = {}, weight = {}}}",
                                  part.name.empty() ? "" : fmt::format("name = {}, ", quoted(part.name)),
                                  quoted(part.path), decimal(part.weight)));
    }
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
  std::string operator()(const std::vector<std::string>& labels) const {
    if (labels == numbered_labels(static_cast<std::int64_t>(labels.size()))) {
      return labels.empty() ? "" : std::to_string(labels.size());
    }
    return print_texts(labels);
  }
  std::string operator()(const std::vector<EvaluationTaskConfig>& tasks) const {
    std::vector<std::string> parts;
    for (const EvaluationTaskConfig& task : tasks) {
      parts.push_back(fmt::format("{{name = {}, task = {}, data = {}, every = {}{}{}}}", quoted(task.name),
                                  quoted(task.task), quoted(task.data), task.every,
                                  task.stride > 0 ? fmt::format(", stride = {}", task.stride) : "",
                                  task.strict ? ", strict = true" : ""));
    }
    return parts.empty() ? "" : fmt::format("[{}]", fmt::join(parts, ", "));
  }
  std::string operator()(const std::vector<ParameterGroupConfig>& groups) const {
    std::vector<std::string> parts;
    for (const ParameterGroupConfig& group : groups) {
      Config own;
      own.optimizer = group.values;
      std::string part = selection_text(group);
      if (group.learning_rate_factor != 1) part += ", learning_rate_factor = " + decimal(group.learning_rate_factor);
      for (const std::string& key : group.keys) {
        const auto print = [&](auto access) { return Print{false}(access(own)); };
        part += fmt::format(", {} = {}", key, std::visit(print, find_key("optimizer", key)->access));
      }
      parts.push_back(fmt::format("{{{}}}", part));
    }
    return parts.empty() ? "" : fmt::format("[{}]", fmt::join(parts, ", "));
  }

 private:
  bool absent(bool zero) const { return may_be_absent && zero; }
};

}  // namespace

std::string print_texts(const std::vector<std::string>& texts) {
  std::vector<std::string> parts;
  for (const std::string& text : texts) parts.push_back(quoted(text));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string print_value(const Key& key, const Config& config) {
  Config readable = config;  // the schema's access is one for reading and writing
  return std::visit([&](auto access) { return Print{!key.absent.empty()}(access(readable)); }, key.access);
}

std::string facts_of_key(const Key& key) {
  std::string facts = type_name(key);
  if (!key.unit.empty()) facts += fmt::format(", {}{}", key.unit.starts_with("of ") ? "" : "in ", key.unit);
  for (const std::string& more : {range_text(key.constraint), key.constraint.note, needs_text(key.constraint)}) {
    if (!more.empty()) facts += "; " + more;
  }
  if (key.absent == "required") return facts + ". Required.";
  return facts + fmt::format(". Default: {}.", key.absent.empty() ? print_value(key, Config{}) : key.absent);
}

std::string print_config(const Config& config) {
  std::string result;
  for (const TableDescription& table : schema_tables()) {
    result += fmt::format("{}[{}]\n", result.empty() ? "" : "\n", table.name);
    for (const Key& key : schema()) {
      if (key.table != table.name) continue;
      const std::string value = print_value(key, config);
      if (!value.empty()) result += fmt::format("{} = {}\n", key.name, value);
    }
  }
  return result;
}

namespace {

/// "" where the key need not be given.
std::string given_value(const Key& key, const Config& config, const Config& base) {
  const std::string value = print_value(key, config);
  return value != print_value(key, base) || key.name == "preset" ? value : "";
}

/// A key's line, with the first sentence of its help.
std::string commented(const Key& key, const std::string& value) {
  constexpr std::size_t kColumn = 44, kWidth = 120;
  std::string_view help = key.help.substr(0, std::min(key.help.find(". "), key.help.find(';')));
  if (help.ends_with('.')) help.remove_suffix(1);
  const std::string line = fmt::format("{} = {}", key.name, value);
  const std::string after = fmt::format("{:<{}}  # {}\n", line, kColumn, help);
  if (help.empty() || after.find('\n') + 1 < after.size()) return line + "\n";
  return after.size() <= kWidth ? after : fmt::format("# {}\n{}\n", help, line);
}

/// Lines of the keys that `says` has one for, under the headings of `tables`.
template <class Tables, class Says>
std::string print_tables(const Tables& tables, const Says& says) {
  std::string result;
  for (const std::string_view table : tables) {
    std::string lines;
    for (const Key& key : schema()) {
      if (key.table == table) lines += says(key);
    }
    if (!lines.empty()) result += fmt::format("{}[{}]\n{}", result.empty() ? "" : "\n", table, lines);
  }
  return result;
}

}  // namespace

std::string print_given_keys(const Config& config, const Config& base) {
  std::vector<std::string_view> tables;
  for (const TableDescription& table : schema_tables()) tables.push_back(table.name);
  return print_tables(tables, [&](const Key& key) -> std::string {
    const std::string value = given_value(key, config, base);
    return value.empty() ? "" : commented(key, value);
  });
}

std::string print_given(const Config& config, const Config& base, std::span<const std::string_view> tables) {
  return print_tables(tables, [&](const Key& key) -> std::string {
    const std::string value = given_value(key, config, base);
    return value.empty() ? "" : fmt::format("{} = {}\n", key.name, value);
  });
}

std::vector<std::string> changed_keys(const std::string& saved, const Config& config) {
  std::map<std::string, std::string> before;
  std::istringstream stream(saved);
  std::string table;
  for (std::string line; std::getline(stream, line);) {
    const auto equals = line.find(" = ");
    if (line.starts_with('[')) {
      table = line.substr(1, line.find(']') - 1);
    } else if (equals != std::string::npos) {
      before[table + "." + line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  Config current = config, defaults;
  derive_momentum(current);
  defaults.optimizer.momentum = row_named(kUpdateRules, config.optimizer.name).momentum;
  std::vector<std::string> changes;
  for (const Key& key : schema()) {
    const std::string name = key.full_name(), now = print_value(key, current);
    const auto found = before.find(name);
    const std::string then = found != before.end() ? found->second : print_value(key, defaults);
    if (now == then) continue;
    changes.push_back(
        fmt::format("{} = {} (was {})", name, now.empty() ? "not set" : now, then.empty() ? "not set" : then));
  }
  return changes;
}

}  // namespace megatron
