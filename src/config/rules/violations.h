// Building blocks of rules: a collector of violations, and the nearest choices that would work. Internal to src/config.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/rules/rules.h"

namespace megatron {

class Violations {
 public:
  template <class... Args>
  void add(std::vector<std::string> keys, fmt::format_string<Args...> format, Args&&... args) {
    violations_.push_back({std::move(keys), fmt::format(format, std::forward<Args>(args)...), ""});
  }
  /// Violation::other_way_out of the last one.
  template <class... Args>
  void add_other_way_out(fmt::format_string<Args...> format, Args&&... args) {
    violations_.back().other_way_out = fmt::format(format, std::forward<Args>(args)...);
  }
  std::vector<Violation> take() { return std::move(violations_); }

 private:
  std::vector<Violation> violations_;
};

/// "1, 2, 3, 4, 6, 12": the divisors of n; of many, the ones around `near`.
std::string divisors(std::int64_t n, std::int64_t near);

/// "48, 56": the multiples of m around n, without 0.
std::string multiples_around(std::int64_t n, std::int64_t m);

/// Learning rate, weight decay, loss scale, loss and optimizer.
void check_update(const Config& config, Violations& violations);
/// Sizes of the model and how the layout divides it: the part of check_alone in model_rules.cpp.
void check_model(const Config& config, Violations& violations);
/// Heads that the exchange of context ranks divides.
void check_exchange(const Config& config, Violations& violations);
/// Settings that an encoder does not have, and those that it alone has.
void check_bert(const Config& config, Violations& violations);
/// The same for an encoder-decoder.
void check_t5(const Config& config, Violations& violations);
/// Values of keys that need others of other keys: Constraint::needs of the schema.
void check_needs(const Config& config, Violations& violations);
/// Settings that experts need.
void check_moe(const Config& config, Violations& violations);
/// Settings that a task for fine-tuning needs, and those that belong to another one.
void check_task(const Config& config, Violations& violations);

}  // namespace megatron
