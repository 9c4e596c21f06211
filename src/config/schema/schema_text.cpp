// The schema in words: types and ranges, for messages and documentation.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "config/schema/schema.h"

namespace megatron {
namespace {

struct TypeName {
  std::string operator()(Access<std::int64_t>) const { return "integer"; }
  std::string operator()(Access<std::uint64_t>) const { return "integer"; }
  std::string operator()(Access<double>) const { return "number"; }
  std::string operator()(Access<std::optional<double>>) const { return "number"; }
  std::string operator()(Access<bool>) const { return "true or false"; }
  std::string operator()(Access<std::string>) const { return "string"; }
  std::string operator()(Access<std::vector<std::int64_t>>) const { return "array of integers"; }
  std::string operator()(Access<BiasConfig>) const {
    return "true, false, \"attention\", \"query_key_value\" or \"feed_forward\"";
  }
  std::string operator()(Access<RotaryScalingConfig>) const { return "table {type, factor, ...}"; }
  std::string operator()(Access<BatchRampUp>) const { return "table {start, increment, samples}"; }
  std::string operator()(Access<Curriculum>) const { return "table {schedule, ...}"; }
  std::string operator()(Access<RecomputeParts>) const {
    std::vector<std::string_view> names;
    for (const RecomputePartChoice& row : kRecomputeParts) names.push_back(row.name);
    return fmt::format("array of \"{}\"", fmt::join(names, "\", \""));
  }
  std::string operator()(Access<TrainConfig>) const { return "integer or \"epoch\""; }
  std::string operator()(Access<OptimizerConfig>) const { return "array of two numbers"; }
  std::string operator()(Access<CheckpointConfig>) const { return "integer or \"never\""; }
  std::string operator()(Access<std::vector<EvaluationTaskConfig>>) const {
    return "array of tables {name, task, data, every, ...}";
  }
  std::string operator()(Access<std::vector<ParameterGroupConfig>>) const {
    return "array of tables {roles, names, name, learning_rate_factor, weight_decay, ...}";
  }
  std::string operator()(Access<std::vector<std::string>>) const { return "integer or array of strings"; }
  std::string operator()(Access<Blend>) const { return "path, or array of paths or {name, path, weight}"; }
};

/// Large limits are powers: "2^24", "10^12".
std::string short_number(double value) {
  if (value < 1e4) return fmt::format("{}", value);
  for (const double base : {2.0, 10.0}) {
    const double exponent = std::round(std::log(value) / std::log(base));
    if (std::pow(base, exponent) == value) return fmt::format("{}^{}", base, exponent);
  }
  return fmt::format("{}", value);
}

bool in_range(const Constraint& c, double value) {
  return value >= c.minimum && value <= c.maximum && !(c.above_minimum && value == c.minimum) &&
         !(c.below_maximum && value == c.maximum);
}

/// As the program computes with it. Processors may take what is smaller than normal for 0.
double as_held(HeldIn held_in, double value) {
  switch (held_in) {
    case HeldIn::f64: break;
    case HeldIn::f32: return std::fpclassify(static_cast<float>(value)) == FP_SUBNORMAL ? 0 : static_cast<float>(value);
    case HeldIn::dropout_steps: return std::round(value * 65536) / 65536;
  }
  return value;
}

}  // namespace

std::string lost_in_use(const Constraint& constraint, double value) {
  const double held = as_held(constraint.held_in, value);
  if (std::isfinite(held) && in_range(constraint, held) && (held != 0 || value == 0)) return "";
  if (constraint.held_in == HeldIn::dropout_steps) {
    return fmt::format("is {} in the steps of 1/65536 of dropout; give a probability from 1/65536 to 65535/65536{}",
                       held, held == 0 ? ", or 0" : "");
  }
  using Fp32 = std::numeric_limits<float>;
  if (!std::isfinite(held)) return fmt::format("is infinity in fp32, whose largest number is {:.8g}", Fp32::max());
  if (held == 0) return fmt::format("is 0 in fp32, whose smallest number above 0 is {:.8g}", Fp32::min());
  return value < held ? fmt::format("is {} in fp32, whose largest number below is {:.8g}", held,
                                    std::nextafter(static_cast<float>(held), 0.0f))
                      : fmt::format("is {} in fp32, whose smallest number above is {:.8g}", held,
                                    std::nextafter(static_cast<float>(held), Fp32::max()));
}

std::string expected_type(const Key& key) {
  return std::visit(TypeName{}, key.access);
}

std::string type_name(const Key& key) {
  if (!key.constraint.choices.empty()) {
    return fmt::format("\"{}\"", fmt::join(key.constraint.choices, "\", \""));
  }
  const std::string type = expected_type(key);
  return key.constraint.path && type == "string" ? "path" : type;
}

std::string range_text(const Constraint& constraint) {
  const bool low = std::isfinite(constraint.minimum), high = std::isfinite(constraint.maximum);
  const auto lower =
      fmt::format("{} {}", constraint.above_minimum ? "above" : "at least", short_number(constraint.minimum));
  if (!low) return "";
  if (!high) return lower;
  return fmt::format("{}, {} {}", lower, constraint.below_maximum ? "below" : "at most",
                     short_number(constraint.maximum));
}

namespace {

/// The fields that a key stands for: the value itself, or the key's own fields of a part of Config that has other keys
/// too.
template <class Value>
auto fields_of(Value& value) {
  return std::tie(value);
}
auto fields_of(TrainConfig& train) {
  return std::tie(train.evaluate_every, train.evaluate_every_epoch);
}
auto fields_of(OptimizerConfig& optimizer) {
  return std::tie(optimizer.beta1, optimizer.beta2);
}
auto fields_of(CheckpointConfig& checkpoint) {
  return std::tie(checkpoint.every_steps, checkpoint.never);
}

}  // namespace

void copy_value(const Key& key, const Config& from, Config& to) {
  Config source = from;
  std::visit([&](auto access) { fields_of(access(to)) = fields_of(access(source)); }, key.access);
}

std::string needs_text(const Constraint& constraint) {
  std::string text;
  for (const Need& need : constraint.needs) {
    text += fmt::format("{}{}with {} {} only", text.empty() ? "" : "; ",
                        need.of_value.empty() ? "" : fmt::format("\"{}\" ", need.of_value),
                        need.key.substr(need.key.find('.') + 1), one_of_text(need.values));
  }
  return text;
}

std::string one_of_text(const std::vector<std::string>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += fmt::format("{}\"{}\"", i == 0 ? "" : i + 1 < values.size() ? ", " : " or ", values[i]);
  }
  return text;
}

bool differs(const Key& key, Config& a, Config& b) {
  return std::visit([&](auto access) { return fields_of(access(a)) != fields_of(access(b)); }, key.access);
}

}  // namespace megatron
