#include "data/tokenizer_kinds/byte_tokenizer.h"

#include "base/core/error.h"
#include "base/core/philox.h"
#include "data/tokenizer/part_borders.h"
#include "data/tokenizer/tokenizer_export.h"

namespace megatron {

namespace {

class ByteEncoder final : public Encoder {
 public:
  ByteEncoder(const AddedTokens& added, SpecialTokens special) : Encoder(special), added_(added), special_(special) {}

 private:
  void run(std::string_view text, const PartBorders& borders, TokenOutput& output) override {
    if (special_ == SpecialTokens::text && output.part_of == nullptr) return add_bytes(text, borders, output);
    added_.split(
        text, borders, [&](std::string_view part, const PartBorders& inside) { add_bytes(part, inside, output); },
        [&](std::int32_t id, std::uint32_t part) { output.add(id, part); });
  }

  static void add_bytes(std::string_view text, const PartBorders& borders, TokenOutput& output) {
    const std::size_t start = output.ids.size();
    output.ids.resize(start + text.size());
    for (std::size_t i = 0; i < text.size(); ++i) output.ids[start + i] = static_cast<unsigned char>(text[i]);
    if (output.part_of == nullptr) return;
    for (std::size_t i = 0; i < text.size(); ++i) output.part_of->push_back(borders.part_at(i));
  }

  const AddedTokens& added_;
  SpecialTokens special_;
};

}  // namespace

ByteTokenizer::ByteTokenizer() : added_({{.content = std::string(kEndOfText), .id = kEnd, .special = true}}) {}

std::uint64_t ByteTokenizer::hash() const {
  return hash_name("tokenizer byte: id = byte, 256 = end of document");
}

std::unique_ptr<Encoder> ByteTokenizer::make_encoder(SpecialTokens special) const {
  return std::make_unique<ByteEncoder>(added_, special);
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const std::int32_t id : ids) {
    verify(id >= 0 && id < vocab_size(), ErrorKind::data, "token id {} is outside the byte tokenizer's 0 .. 256", id);
    if (id != eod_id()) text.push_back(static_cast<char>(id));
  }
  return text;
}

std::string ByteTokenizer::eod_text() const {
  return std::string(kEndOfText);
}

std::string ByteTokenizer::tokenizer_json() const {
  BpeVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  vocabulary.tokens.push_back(eod_text());
  vocabulary.end_of_text = eod_id();
  return write_tokenizer_json(vocabulary);
}

}  // namespace megatron
