#include "data/tokenizer_kinds/sentence_piece_tokenizer.h"

#include <fmt/format.h>

#include <bit>
#include <optional>

#include "base/core/error.h"
#include "base/core/philox.h"
#include "data/tokenizer/special_names.h"
#include "data/tokenizer_kinds/sentence_piece_library.h"

namespace megatron {

namespace {

bool is_text(PieceType type) {
  return type != PieceType::control && type != PieceType::unknown;
}

std::vector<AddedToken> special_tokens_of(const SentencePieceModel& model) {
  std::vector<AddedToken> tokens;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (is_text(model.pieces[id].type)) continue;
    tokens.push_back({.content = model.pieces[id].text, .id = static_cast<std::int32_t>(id), .special = true});
  }
  return tokens;
}

std::uint64_t hash_of(const SentencePieceModel& model) {
  std::string all = fmt::format("tokenizer sentencepiece: {} bytes {} {}:", model.unigram ? "unigram" : "bpe",
                                model.byte_fallback, model.normalizer.size());
  all += model.normalizer;
  for (const auto& [text, score, type] : model.pieces) {
    all +=
        fmt::format("{}:{}{:08x}{},", text.size(), text, std::bit_cast<std::uint32_t>(score), static_cast<int>(type));
  }
  if (model.prefix_once) all += "prefix once,";
  return hash_name(all + fmt::format("end of document {}", model.special.eos));
}

/// normalizer_spec { add_dummy_prefix: false }, which overrides what the model says when it follows it.
const std::string kNoPrefix("\x1A\x02\x18\0", 4);

class SentencePieceEncoder final : public Encoder {
 public:
  SentencePieceEncoder(const SentencePieceModel& model, const std::string& path, const AddedTokens& added,
                       SpecialTokens special)
      : Encoder(special), library_(model.text, path), added_(added), drops_spaces_(model.remove_extra_whitespaces) {
    if (model.prefix_once) without_prefix_.emplace(model.text + kNoPrefix, path);
  }

 private:
  void run(std::string_view text, const PartBorders& borders, TokenOutput& output) override {
    added_.split(
        text, borders,
        [&](std::string_view part, const PartBorders& inside) {
          verify(part.size() <= kLongestPiece, ErrorKind::data,
                 "a text of {} bytes: SentencePiece looks at texts as a whole, and they may have at most {}",
                 part.size(), kLongestPiece);
          SentencePieceLibrary& library = library_for(part, part.data() == text.data());
          library.encode(part, output.ids);
          if (output.part_of == nullptr) return;
          for (const std::size_t byte : library.last_bytes(part)) output.part_of->push_back(inside.part_at(byte));
        },
        [&](std::int32_t id, std::uint32_t part) { output.add(id, part); });
  }

  /// Without the prefix, the library would drop the spaces that a text begins with; one of them stays.
  SentencePieceLibrary& library_for(std::string_view part, bool at_front) {
    const bool prefix = !without_prefix_ || at_front || (drops_spaces_ && part.starts_with(' '));
    return prefix ? library_ : *without_prefix_;
  }

  SentencePieceLibrary library_;
  std::optional<SentencePieceLibrary> without_prefix_;
  const AddedTokens& added_;
  bool drops_spaces_;
};

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceModel model, const std::string& path)
    : model_(std::move(model)), path_(path), added_(special_tokens_of(model_)), hash_(hash_of(model_)) {
  const SentencePieceLibrary library(model_.text, path);
  verify(library.pieces() == model_.pieces.size(), ErrorKind::data,
         "{}: libsentencepiece finds {} pieces in this model, and {} are there", path, library.pieces(),
         model_.pieces.size());
}

std::unique_ptr<Encoder> SentencePieceTokenizer::make_encoder(SpecialTokens special) const {
  return std::make_unique<SentencePieceEncoder>(model_, path_, added_, special);
}

std::string SentencePieceTokenizer::decode_next(std::int32_t id) const {
  verify(id >= 0 && id < vocab_size(), ErrorKind::data, "token id {} is outside the {} tokenizer's 0 .. {}", id, name(),
         vocab_size() - 1);
  const auto& [text, score, type] = piece(id);
  if (id == eod_id()) return "";
  if (type == PieceType::byte) {
    if (const auto byte = byte_of_piece(text)) return std::string(1, *byte);
  }
  return is_text(type) ? spaces_written(text) : text;
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  return joined(ids, model_.add_dummy_prefix, *this);
}

std::vector<std::uint8_t> SentencePieceTokenizer::continues() const {
  std::vector<std::uint8_t> result;
  for (const auto& [text, score, type] : model_.pieces) {
    result.push_back(type != PieceType::control && !text.starts_with(kSpaceMark) ? 1 : 0);
  }
  clear_special(model_.special, result);
  return result;
}

std::string SentencePieceTokenizer::tokenizer_json() const {
  return "";
}

}  // namespace megatron
