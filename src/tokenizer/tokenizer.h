// Tokenizer: text to token ids and back. Encoders are pure functions of the text and the vocabulary: no state, and safe
// to use from several threads.
//
// Ids are 0 .. vocab_size() - 1. The hash identifies the mapping itself, so that shards made with another vocabulary of
// the same size are told apart. This layer must not know what shards or samples are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  virtual std::string name() const = 0;         ///< as make_tokenizer takes it
  virtual std::int64_t vocab_size() const = 0;  ///< unpadded
  virtual std::int32_t eod_id() const = 0;      ///< ends a document; no text encodes to it
  virtual std::uint64_t hash() const = 0;       ///< of the mapping
  /// Appends the ids of `text` to `ids`.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  /// The text of `ids`. The end-of-document id gives nothing; an id outside the vocabulary is ErrorKind::data.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
};

/// The tokenizer of this name; ErrorKind::configuration, listing what exists, if there is none.
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name);

}  // namespace megatron
