// The parts of a text that are compared with those of others: all of it, its paragraphs or its lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

enum class ComparedPart : std::uint8_t { document, paragraph, line };
/// By name; ErrorKind::configuration for another word.
ComparedPart compared_part_of(const std::string& word);

/// The text in pieces, which make it up: a paragraph ends with the blank lines after it, a line with its end and the
/// blank lines after it. Blank lines at the beginning belong to the first piece.
std::vector<std::string_view> parts_of_text(std::string_view text, ComparedPart part);

}  // namespace megatron
