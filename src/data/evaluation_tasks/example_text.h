// Shared by tasks: lines of JSON with their numbers, white space, and sequences that fit into a model's context.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <functional>
#include <string_view>
#include <vector>

#include "base/text/json_reader.h"
#include "data/evaluation_tasks/task.h"

namespace megatron {

/// The text without a byte order mark. Error(data) with the line's number if it is not UTF-8.
std::string_view checked_utf8(const TaskInput& input);

/// White space as in Python's str.strip() and \s, which the original programs use.
bool is_white_space(std::uint32_t code_point);
std::string_view without_leading_space(std::string_view text);
std::string_view without_trailing_space(std::string_view text);
/// The last piece of the text between white space; empty if there is none.
std::string_view last_word(std::string_view text);

/// A text of `tokens`, two or more, as overlapping windows: window i begins at token i · stride and has the context and
/// one token more. All but the first count their last `stride` targets only, so that each of these has at least
/// context - stride tokens in front of it, and every token after the text's first is a target once. `usual_stride`:
/// where the input asks for none. Error(configuration) for a stride that is not in 1 .. context.
std::vector<ScoredSequence> text_windows(const TaskInput& input, std::span<const std::int32_t> tokens,
                                         std::int64_t usual_stride);

/// One line that is not blank, and its number from 1.
struct ExampleLine {
  const TaskInput& input;
  std::string_view text;
  std::int64_t number;

  /// Error(data) "FILE:LINE: message".
  [[noreturn]] void refuse(std::string_view message) const;
  /// Calls `visit` with each key of the object that the line is; it takes the value, or calls skip_value().
  void visit_members(const std::function<void(std::string_view key, JsonReader& json)>& visit) const;
};

/// Error(data) if there is no line but blank ones.
void visit_lines(const TaskInput& input, const std::function<void(const ExampleLine& line)>& visit);

/// Sequences of their own tokens: a context, which may lose its beginning, and targets after it.
class FittedSequences {
 public:
  /// Error(data) if there is no target, or more of them than the context has room for. Tells whether the context was
  /// shortened.
  bool add(const ExampleLine& line, TaskInput::Pair pair);
  std::span<const ScoredSequence> all() const { return sequences_; }

 private:
  std::deque<std::vector<std::int32_t>> tokens_;
  std::vector<ScoredSequence> sequences_;
};

}  // namespace megatron
