// Instructions for fine-tuning a decoder: prompts with their completions, and conversations, out of JSON lines. Knows
// text alone. Nothing in a file is trusted: what is wrong is an Error(data) with the file and the line.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/finetuning/labelled_examples.h"

namespace megatron {

/// Text that the model reads, or that it learns to write. Views, valid while the instruction is taken.
struct InstructionPart {
  std::string_view text;
  bool learned = false;
  bool of_template = false;  ///< part of the template: special tokens may be written out in it
};
using Instruction = std::vector<InstructionPart>;

/// Text around a role's messages.
struct RoleTemplate {
  std::string role, prefix, suffix;
  bool learned = false;  ///< its messages, and the suffix after them
};
using ChatTemplate = std::array<RoleTemplate, 3>;

using TakeInstruction = std::function<void(const Instruction& instruction)>;

/// Calls `take` with those of all lines: at least one, or Error(data). A line is {prompt, completion}, of which the
/// completion is learned, or {messages: [{role, content, weight}, ...]} with a message of a role that is learned.
/// A message of weight 0 is not learned; without a weight it is as its role says.
void read_instructions(const ExampleFile& file, const ChatTemplate& chat, const TakeInstruction& take);

}  // namespace megatron
