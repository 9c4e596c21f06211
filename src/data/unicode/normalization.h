// Unicode's normalization forms (UAX #15), as the normalizers NFC, NFD, NFKC and NFKD of a tokenizer.json ask for them.
//
// Equivalent texts become the same text: characters are decomposed, marks on a character are put in order, and in forms
// C and KC what belongs together is composed again. Bytes that are not valid UTF-8 are kept and separate what is next
// to them. Time is n log n for any text; Latin text is only looked at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Composed (c) or decomposed (d), canonically or by compatibility (k).
enum class NormalForm : std::uint8_t { c, d, kc, kd };

/// The text in this form: `text` itself if it is already plain, else a view of `buffer`.
std::string_view normalized_text(std::string_view text, NormalForm form, std::string& buffer);
inline std::string_view normalized_nfc(std::string_view text, std::string& buffer) {
  return normalized_text(text, NormalForm::c, buffer);
}

/// Form D, a character at a time: appends what it is decomposed to, and says by which class marks are put in order.
void append_decomposition(std::uint32_t code_point, std::vector<std::uint32_t>& out);
std::uint8_t combining_class(std::uint32_t code_point);

}  // namespace megatron
