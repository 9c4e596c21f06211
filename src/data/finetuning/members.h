// Members of a line of JSON that must be there once. Internal to src/data/finetuning.
#pragma once

#include <optional>
#include <utility>

#include "data/evaluation_tasks/example_text.h"

namespace megatron {

/// Error(data) if it has been there before.
template <class T>
void set_once(const ExampleLine& line, std::string_view key, std::optional<T>& member, T value) {
  if (member) line.refuse(fmt::format("two keys \"{}\"", key));
  member = std::move(value);
}

/// Error(data) if it was not there.
template <class T>
T& required(const ExampleLine& line, std::string_view key, std::optional<T>& member) {
  if (!member) line.refuse(fmt::format("no key \"{}\"", key));
  return *member;
}

}  // namespace megatron
