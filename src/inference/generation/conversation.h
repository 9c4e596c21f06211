// Prompts that come one at a time while the program runs: typed by a person (--interactive), or written by a program
// (--serve-stdio, a protocol of JSON lines that docs/generation.md describes). Rank 0 reads and writes; the others
// compute with it until the input ends.
#pragma once

#include <functional>
#include <string>

#include "base/terminal/interrupt_flag.h"
#include "base/terminal/line_reader.h"
#include "data/samples/chat_text.h"
#include "inference/generation/prompts.h"
#include "inference/generation/text_generator.h"

namespace megatron {

struct Conversation {
  TextGenerator& generator;
  PromptEncoder& encoder;
  TextOptions options;  ///< for all texts, unless a request says otherwise
  SearchOptions search;
  LineReader& input;                                        ///< read on rank 0 alone
  std::function<void(const std::string& text)> print = {};  ///< called on rank 0 alone
};

/// Each line is one prompt. It is printed with the text that continues it; an encoder-decoder's text is printed alone.
/// `flag`, of any rank, ends an answer, or what was typed so far. `sign`: what is printed where a prompt is expected.
void converse(const Conversation& conversation, InterruptFlag& flag, const std::string& sign);

/// The form of a conversation with a model that has learned answers.
struct ChatForm {
  ChatTemplate chat;
  std::string system = {};  ///< the first message; empty: none
};
/// Each line is a user's message. The model answers it with all messages before it in mind, in the text of its
/// training; where they are more than the context has room for, the oldest are left out. An answer ends with the text
/// or token that ends it in training. Printed are answers alone. `flag`, `sign` as for converse().
void chat(const Conversation& conversation, const ChatForm& form, InterruptFlag& flag, const std::string& sign);

/// Each line is a request. A request that cannot be fulfilled is answered with its error.
void serve(const Conversation& conversation);

}  // namespace megatron
