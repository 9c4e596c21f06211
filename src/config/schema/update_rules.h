// The table of update rules: what all layers but the optimizer must know of one. Its update is in the row of the same
// name in training/optimizer/update_rules.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/named_rows.h"

namespace megatron {

/// Up to six names; unused places at the end are empty.
struct Names {
  std::array<std::string_view, 6> all{};

  constexpr const std::string_view* begin() const { return all.data(); }
  constexpr const std::string_view* end() const { return std::find(all.data(), all.data() + all.size(), ""); }
  constexpr std::size_t size() const { return static_cast<std::size_t>(end() - begin()); }
  constexpr bool operator==(const Names&) const = default;
  constexpr bool contains(std::string_view name) const { return std::find(begin(), end(), name) != end(); }
};

/// Powers of the width's factor (ModelConfig::width_factor) that optimizer.scaling = "mup" multiplies the learning rate
/// with: table 8 of Yang and Hu et al. 2022. By kinds of parameters, for which it has three columns.
struct RatePowers {
  double tables = 0;    ///< tables, the head and vectors: one dimension grows with the width
  double matrices = 0;  ///< hidden matrices: both do. Of a rule that needs them whole, without that of its scale
  double outputs = 0;   ///< routers and heads of tasks, which have no factor of their outputs: as in table 3
};

struct UpdateRuleFacts {
  std::string_view name;        ///< optimizer.name
  Names states;                 ///< numbers that it keeps of each element, by their names in checkpoints
  Names keys;                   ///< keys of [optimizer] that it reads and not all rules do
  bool needs_matrices = false;  ///< the update of an element depends on the whole matrix that has it. Other parameters
                                ///< than hidden matrices are updated by AdamW, whose keys are among these
  double momentum = 0.9;        ///< default of optimizer.momentum; resolved files say it whatever the rule
  RatePowers mup = {};
};

inline constexpr std::array kUpdateRules{
    UpdateRuleFacts{.name = "adamw", .states = {"m", "v"}, .keys = {"betas", "epsilon"}, .mup = {0, -1, -1}},
    UpdateRuleFacts{.name = "sgd", .states = {"m"}, .keys = {"momentum"}, .mup = {1, 0, -1}},
    UpdateRuleFacts{.name = "lion", .states = {"m"}, .keys = {"betas"}, .mup = {0, -1, -1}},
    UpdateRuleFacts{.name = "muon",
                    .states = {"m"},
                    .keys = {"betas", "epsilon", "momentum", "nesterov", "muon_scale", "adamw_learning_rate_factor"},
                    .needs_matrices = true,
                    .momentum = 0.95},
};

/// The names of the rules that read a key.
inline std::vector<std::string> update_rules_with(std::string_view key) {
  std::vector<std::string> names;
  for (const UpdateRuleFacts& row : kUpdateRules) {
    if (row.keys.contains(key)) names.emplace_back(row.name);
  }
  return names;
}

}  // namespace megatron
