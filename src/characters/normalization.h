// Unicode's normalization form C (UAX #15), as the normalizer NFC of a tokenizer.json asks for it.
//
// Canonically equivalent texts become the same text: characters are decomposed, marks on a character are put in order,
// and what belongs together is composed again. Bytes that are not valid UTF-8 are kept and separate what is next to
// them. Time is n log n for any text; Latin text is only looked at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// The text in form C: `text` itself if it is already plain, else a view of `buffer`.
std::string_view normalized_nfc(std::string_view text, std::string& buffer);

/// Form D, a character at a time: appends what it is decomposed to, and says by which class marks are put in order.
void append_decomposition(std::uint32_t code_point, std::vector<std::uint32_t>& out);
std::uint8_t combining_class(std::uint32_t code_point);

}  // namespace megatron
