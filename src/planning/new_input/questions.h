// The questions of `megatron_train --new`, in their order: mostly one per key, whose text, unit, default and check are
// the schema's. Nothing here reads or prints.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/schema/schema.h"
#include "planning/new_input/draft.h"

namespace megatron {

struct Question {
  std::string section;
  std::string name;          ///< the key's, or a word
  const Key* key = nullptr;  ///< nullptr: not about a key; the answer is not part of the file
  std::string text;          ///< the question, without an end
  std::string kind;          ///< the answer's: "integer, tokens"
  std::function<std::string(const Draft&)> help;

  /// Whether the answers before it leave something to ask.
  std::function<bool(const Draft&)> asked = [](const Draft&) { return true; };
  /// Puts the default into the draft.
  std::function<void(Draft&)> propose = [](Draft&) {};
  /// Puts the answer into the draft, or returns what is wrong with it.
  std::function<std::string(const std::string& answer, Draft&)> read;
  /// The draft's value as people type it.
  std::function<std::string(const Draft&)> value;
  /// Draws conclusions from the value; returns lines for the user. Throws Error if the value does not do after all.
  std::function<std::string(Draft&)> settle = [](Draft&) { return std::string(); };
};

/// For a file of this path, whose name is that of the data and the run's directory by default.
std::vector<Question> questions_for(const std::string& path);

}  // namespace megatron
