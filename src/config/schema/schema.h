// The schema of input files: one row a key. Parsing, printing and inputs/README.md all follow from this table, so that
// a key cannot be read but not printed, or exist without documentation.
//
// Knows Config and nothing else: no TOML (read_value.h), no rule that involves two keys (rules.h).
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/schema/config.h"

namespace megatron {

template <class T>
using Access = T& (*)(Config&);

/// Where a key's value lives. Some are not one plain field: betas lives in OptimizerConfig (beta1, beta2),
/// bias is a truth value or a name, rotary_scaling, batch_ramp_up and curriculum are tables, evaluate_every in
/// TrainConfig (steps or "epoch"), checkpoint.every_steps in CheckpointConfig (steps or "never"), data.train,
/// validation and test are blends (a path, or several with weights), task.labels is a list of names or their number,
/// recompute.parts a list of names, evaluation.tasks and optimizer.groups are lists of tables.
using FieldAccess =
    std::variant<Access<std::int64_t>, Access<std::uint64_t>, Access<double>, Access<std::optional<double>>,
                 Access<bool>, Access<std::string>, Access<std::vector<std::int64_t>>, Access<BiasConfig>,
                 Access<RotaryScalingConfig>, Access<BatchRampUp>, Access<Curriculum>, Access<TrainConfig>,
                 Access<RecomputeParts>, Access<OptimizerConfig>, Access<CheckpointConfig>, Access<Blend>,
                 Access<std::vector<std::string>>, Access<std::vector<EvaluationTaskConfig>>,
                 Access<std::vector<ParameterGroupConfig>>>;

/// Rounding of a number where it is used: to nothing coarser than the double that was read, to fp32, or to dropout's
/// steps of 1/65536 (backend/ops/dropout_rule.h).
enum class HeldIn { f64, f32, dropout_steps };

/// A key that must have one of some values where this key has a value other than its default.
struct Need {
  std::string_view key;  ///< full name, of a key whose value is a text
  std::vector<std::string> values;
  std::string of_value;  ///< if set: needed where this key has this value, instead of any that is not the default
};

/// Conditions on one value by itself, and the values of other keys that it needs. Numbers: the range; the elements of
/// arrays and small tables: the same range.
struct Constraint {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool above_minimum = false;        ///< the minimum itself is not allowed
  bool below_maximum = false;        ///< the maximum itself is not allowed
  std::vector<std::string> choices;  ///< strings: empty = any
  bool path = false;                 ///< `${VARIABLE}` is expanded
  HeldIn held_in = HeldIn::f64;      ///< a value in range must stay so there, and not become 0
  std::vector<Need> needs;
  std::string note;  ///< a further rule with other keys, for the documentation

  /// The same with one more need.
  Constraint with(std::string_view key, std::vector<std::string> values, std::string of_value = "") const {
    Constraint result = *this;
    result.needs.push_back({key, std::move(values), std::move(of_value)});
    return result;
  }
};

/// Whether checkpoints record the key as a fact of their model. Keys that were added later are recorded unless they
/// have their default, so that checkpoints of older versions, which lack them, still match.
enum class Fact { none, always, unless_default };

struct Key {
  std::string_view table, name;
  FieldAccess access;
  Constraint constraint;
  std::string_view unit;
  std::string_view absent;  ///< how an absent key is filled ("required", "= attention_heads"); empty: a plain default
  std::string_view help;
  std::string_view group;  ///< at most one of the keys with the same group is given: `--set` of one replaces another
  Fact fact = Fact::none;

  std::string full_name() const { return std::string(table) + "." + std::string(name); }
};

std::span<const Key> schema();

/// The tables in the order they are documented and printed, with a line about each.
struct TableDescription {
  std::string_view name, help;
};
std::span<const TableDescription> schema_tables();

/// The row, or nullptr.
const Key* find_key(std::string_view table, std::string_view name);

/// "integer", "path", "one of ...": as documentation and type errors say it.
std::string type_name(const Key& key);
/// "integer" and the like without choices: what a wrong type is told to be.
std::string expected_type(const Key& key);

/// "\"a\", \"b\" or \"c\"".
std::string one_of_text(const std::vector<std::string>& values);
/// The needs in words, "" if there are none: "with family \"t5\" only; \"post\" with family \"bert\" only".
std::string needs_text(const Constraint& constraint);

/// Whether the two configurations differ in this key.
bool differs(const Key& key, Config& a, Config& b);

/// The range in words, "" if any value is good: "at least 1", "above 0", "from 0 to below 1".
std::string range_text(const Constraint& constraint);

/// "is 0 in fp32, ..." if a value in range is not there as the program computes with it, or has become 0; else "".
std::string lost_in_use(const Constraint& constraint, double value);

/// Copies one key's value between configurations.
void copy_value(const Key& key, const Config& from, Config& to);

}  // namespace megatron
