// Linear time, found by counting work: a text of four times the length takes four times the work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "support/catch.h"

namespace megatron::test {

inline std::string repeated(std::string_view part, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + part.size());
  while (text.size() < bytes) text += part;
  return text;
}

/// `work_of(text)` is what a text of this part, over and over, takes; it may not grow faster than the text, nor be more
/// than `most` for each byte of it.
template <class WorkOf>
void require_linear(std::string_view part, double most, const WorkOf& work_of) {
  constexpr std::size_t kBytes = std::size_t{1} << 18;
  const auto of_quarter = static_cast<double>(work_of(repeated(part, kBytes / 4)));
  const auto of_whole = static_cast<double>(work_of(repeated(part, kBytes)));
  INFO("of: " << part.substr(0, 40) << "; work: " << of_quarter << ", " << of_whole);
  CHECK(of_whole <= 4.5 * of_quarter + 1000);
  CHECK(of_whole <= most * static_cast<double>(kBytes));
}

}  // namespace megatron::test
