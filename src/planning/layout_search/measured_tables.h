// The tables of a hardware file that hold what was measured: products, attention and other operations of each type, and
// links. Reads them from TOML; what is wrong goes to a sink with its place. For hardware.cpp.
#pragma once

#include <toml++/toml.h>

#include <functional>
#include <string>
#include <vector>

#include "planning/layout_search/hardware.h"

namespace megatron {

/// No number of a hardware file is larger.
inline constexpr double kLargestNumber = 1e9;

/// Takes what is wrong at a node; null: with the file as a whole.
using IssueSink = std::function<void(const toml::node*, const std::string&)>;

void check_known_keys(const toml::table& table, const std::string& prefix, const std::vector<std::string>& known,
                      const IssueSink& issue);

/// `products`, which stands for both types, [rates_16bit], [rates_32bit] and [links].
void read_measured(const toml::table& root, Hardware& hardware, const IssueSink& issue);

/// The names of these tables' keys, in the order in which they are written.
inline constexpr const char* kProductKeys[kProductKinds] = {"products", "products_input_gradient",
                                                            "products_weight_gradient"};
inline constexpr const char* kAttentionKeys[kAttentionKinds] = {"attention_forward", "attention_backward",
                                                                "attention_forward_drawn", "attention_backward_drawn"};
inline constexpr const char* kCollectiveKeys[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                  "all_to_all"};

}  // namespace megatron
