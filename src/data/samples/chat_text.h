// Conversations as training has them (instruction_samples.h), for those who continue one: the tokens up to where the
// next answer begins, what ends an answer, and the same text as a template of Hugging Face's transformers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/finetuning/instructions.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

struct ChatMessage {
  std::string role, content;  ///< a role of the template
};

/// The tokens of `messages` and of what stands in front of the assistant's next one. A token that would straddle the
/// answer is not among them, since in training it belonged to the answer.
std::vector<std::int32_t> chat_prompt(const ChatTemplate& chat, const std::vector<ChatMessage>& messages,
                                      Encoder& encoder);

/// The special token that the text after an answer begins with, if it begins with one.
std::optional<std::int32_t> end_of_turn(const ChatTemplate& chat, const Tokenizer& tokenizer);
/// The text that ends an answer in templates without such a token: the assistant's suffix, without white space at its
/// end, or, where that is all of it, the suffix and the beginning of a user's message.
std::string end_of_turn_text(const ChatTemplate& chat);

/// The answer `made`, without the assistant's suffix at its end, which the template puts after every message. An
/// end-of-document token at the end of the suffix makes no text, so `made` is without it.
std::string message_of(std::string made, const ChatTemplate& chat, const Tokenizer& tokenizer);

/// For the user: the special tokens of other vocabularies that texts of the template name, such as "</s>", where this
/// vocabulary reads them as text. A sentence each, about keys of [task].
std::vector<std::string> foreign_special_tokens(const ChatTemplate& chat, const Tokenizer& tokenizer);

/// A Jinja template that renders `messages` as the text that training has, with the name of the end-of-document token
/// at the end, unless the last message's suffix ends with it, or with add_generation_prompt up to the answer.
std::string jinja_template(const ChatTemplate& chat, const Tokenizer& tokenizer);

}  // namespace megatron
