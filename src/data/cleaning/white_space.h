// White space of a text: tidied, or as Megatron-LM's tools collapse it. Used by the step `text` of megatron_clean.
// Linear.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// Runs of spaces and tabs become one space, lines lose them at both ends, more than one blank line becomes one, and
/// the text has none at its ends. `text` itself if it is tidy, else a view of `buffer`.
std::string_view tidied_white_space(std::string_view text, std::string& buffer);

/// General cleaning of Megatron-LM's cleanup_fix_dataset.py: two spaces or more, and line feeds after a word (with one
/// space after them), become one space.
std::string megatron_white_space(std::string_view text);

}  // namespace megatron
