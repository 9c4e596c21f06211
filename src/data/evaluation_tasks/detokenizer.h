// WikiText's text as people write it: WikiText separates punctuation from words, and marks what it separated.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// The replacements of Megatron-LM's detokenizer for WikiText, one after the other over the whole text (valid UTF-8),
/// but for one that turns digits between slashes into its own pattern.
std::string detokenized_wikitext(std::string_view text);

}  // namespace megatron
