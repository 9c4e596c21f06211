// The text of one line of a JSON lines file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Why a document can't be used. Not an Error: --skip-bad continues.
struct BadDocument {
  std::string reason;  ///< fit for a terminal
  std::size_t at = 0;  ///< byte of the document that is wrong
};

/// The string under `key` in the JSON object that `line` (valid UTF-8) is; the last one if the key is there twice. A
/// view of `line` or of `buffer`. Throws BadDocument.
std::string_view text_of_json(std::string_view line, std::string_view key, std::string& buffer);

/// The same of an array of strings, one after the other; `ends` becomes where each of them ends.
std::string_view texts_of_json(std::string_view line, std::string_view key, std::string& buffer,
                               std::vector<std::size_t>& ends);

}  // namespace megatron
