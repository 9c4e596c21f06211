// Tables of choices: arrays of rows with a `name`, as input files write it. The choices, and what one of them means,
// are derived from the table.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/error.h"

namespace megatron {

/// The row of this name; null if the table has none.
template <class Table>
constexpr auto find_row(const Table& table, std::string_view name) {
  const auto found =
      std::find_if(std::begin(table), std::end(table), [&](const auto& row) { return row.name == name; });
  return found == std::end(table) ? nullptr : &*found;
}

/// The row of a name that configuration has checked. Errors: internal, for any other.
template <class Table>
const auto& row_named(const Table& table, std::string_view name) {
  const auto* const row = find_row(table, name);
  internal_check(row != nullptr, "a choice of the configuration that its table does not have");
  return *row;
}

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table) names.emplace_back(row.name);
  return names;
}

/// Two tables have the same rows in the same order: for static_assert where layers split what is known of a choice.
template <class A, class B>
constexpr bool same_names(const A& a, const B& b) {
  return std::equal(std::begin(a), std::end(a), std::begin(b), std::end(b),
                    [](const auto& x, const auto& y) { return x.name == y.name; });
}

}  // namespace megatron
