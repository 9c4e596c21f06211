// A tokenizer for tests of samples: each byte is one token, with BERT's special tokens if asked for.
#pragma once

#include "data/tokenizer/part_borders.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron::test {

struct ByteWords final : Tokenizer {
  static constexpr std::int32_t kEnd = 0, kCls = 1, kSep = 2, kPad = 3;

  struct Words final : Encoder {
    Words() : Encoder(SpecialTokens::text) {}
    void run(std::string_view text, const PartBorders& borders, TokenOutput& output) override {
      for (std::size_t i = 0; i < text.size(); ++i) {
        output.add(static_cast<unsigned char>(text[i]), borders.part_at(i));
      }
    }
  };

  explicit ByteWords(bool framed) : framed_(framed) {}
  std::string name() const override { return "bytes"; }
  std::int64_t vocab_size() const override { return 256; }
  std::int32_t eod_id() const override { return kEnd; }
  std::uint64_t hash() const override { return 1; }
  using Tokenizer::make_encoder;
  std::unique_ptr<Encoder> make_encoder(SpecialTokens) const override { return std::make_unique<Words>(); }
  std::string decode(std::span<const std::int32_t> ids) const override { return {ids.begin(), ids.end()}; }
  std::string eod_text() const override { return ""; }
  std::string tokenizer_json() const override { return ""; }
  SpecialIds special_ids() const override {
    SpecialIds ids;
    if (!framed_) return ids;
    ids.cls = kCls;
    ids.sep = kSep;
    ids.pad = kPad;
    return ids;
  }

 private:
  bool framed_;
};

}  // namespace megatron::test
