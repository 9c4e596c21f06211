// The names by which vocabularies of SentencePiece's kind know special tokens, and T5's sentinels: <extra_id_0> has the
// highest id, and the others count down from it, after all other tokens. Internal to src/data/tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary_file.h"

namespace megatron {

/// Character that a piece of SentencePiece has in place of a space (U+2581).
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

/// "<extra_id_7>"
std::string sentinel_name(std::int64_t i);

/// The id of a special token by its name; -1 if there is none.
using FindSpecial = std::function<std::int32_t(std::string_view name)>;

/// cls, sep, mask, pad, bos, eos and the sentinels, by the names that published models have. Without a token that
/// begins texts, bos is pad: T5's decoder begins with it. `unk` is the caller's.
SpecialIds find_special_ids(const FindSpecial& find);

/// The names to add after the last token, in the order of their ids, so that the vocabulary has `extra_ids` sentinels:
/// none if it has as many. ErrorKind::data if it has some, but fewer.
std::vector<std::string> missing_sentinels(const SpecialIds& special, std::int64_t extra_ids, const NamedText& file);

/// Tokenizer::continues(): special tokens continue no word, but <unk> does, which stands for characters of one.
void clear_special(const SpecialIds& special, std::vector<std::uint8_t>& continues);

/// A piece with spaces in place of kSpaceMark.
std::string spaces_written(std::string_view piece);
/// The byte of a piece that stands for one: '\n' of "<0x0A>".
std::optional<char> byte_of_piece(std::string_view piece);
/// decode_next of all, without the space in front where a tokenizer has put one there.
std::string joined(std::span<const std::int32_t> ids, bool drop_space, const Tokenizer& tokenizer);

}  // namespace megatron
