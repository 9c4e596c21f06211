// Neighbours in writing: characters that stand next to each other or hardly do, by their general categories. This tells
// UTF-8 read in another encoding from a text that only looks like it. Only characters of single_byte_encodings() and
// ASCII are known.
#pragma once

#include <string_view>

namespace megatron {

/// Whether the characters [begin, end) of a line, which would be one sequence of UTF-8, hardly stand there in good
/// text: one does not follow the one before it, as a currency sign a letter; a capital follows a small letter; a sign
/// that ends words is within one; or it is a lone Ã or Â with what words do not have after it.
bool is_unlikely(std::u32string_view line, std::size_t begin, std::size_t end);

}  // namespace megatron
