// Tasks over bytes: the ids of a text are its bytes.
#pragma once

#include <memory>
#include <string>

#include "data/evaluation_tasks/task.h"

namespace megatron::test {

inline constexpr std::int32_t kEndOfDocument = 256;

inline TaskInput byte_input(std::string_view text, std::int64_t context) {
  return {.path = "data.jsonl",
          .text = text,
          .context = context,
          .before = kEndOfDocument,
          .stride = {},
          .encode = [](std::string_view start, std::string_view target) {
            TaskInput::Pair pair{{}, start.size()};
            for (const char c : std::string(start) + std::string(target)) {
              pair.ids.push_back(static_cast<unsigned char>(c));
            }
            return pair;
          }};
}

/// "context|targets" of a sequence; the token of an empty context is '#'.
inline std::string shown(const ScoredSequence& sequence) {
  std::string result;
  for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
    if (static_cast<std::int64_t>(i) == sequence.first_scored) result += '|';
    result += sequence.tokens[i] == kEndOfDocument ? '#' : static_cast<char>(sequence.tokens[i]);
  }
  return result;
}

inline std::vector<std::string> shown(const EvaluationTask& task) {
  std::vector<std::string> result;
  for (const ScoredSequence& sequence : task.sequences()) result.push_back(shown(sequence));
  return result;
}

}  // namespace megatron::test
