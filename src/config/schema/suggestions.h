// "Did you mean ...?": the key that was probably meant by an unknown one. Knows the names that Megatron-LM,
// Hugging Face and DeepSpeed give to the same things; they are never accepted, only translated.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace megatron {

/// Insertions, deletions, substitutions and swaps of neighbours between two words, without regard to case.
int edit_distance(std::string_view a, std::string_view b);

/// The key to write for `table.name` (table may be empty): "hidden_size" within the same table, "parallel.tensor"
/// elsewhere, "" when nothing is near.
std::string suggest_key(std::string_view table, std::string_view name);

/// The nearest table's name, or "".
std::string suggest_table(std::string_view name);

/// The nearest of some words, or "".
std::string suggest_choice(std::string_view word, std::span<const std::string> choices);

struct KeyAlias {
  std::string_view theirs, ours;
};
std::span<const KeyAlias> key_aliases();

}  // namespace megatron
