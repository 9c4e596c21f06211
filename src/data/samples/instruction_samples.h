// InstructionSamples: samples of examples of which a decoder learns the answers alone. Several examples stand one after
// the other in a sample, each by itself: tokens see their own example only, positions begin again with each, no target
// is of another one, and only tokens that are learned have a weight. Sample i is a pure function of i. Every pass has
// each example once; which examples of a length share a sample, and the order of the samples, depend on (seed, pass)
// alone. EncodedInstructions holds the tokens and how they are packed, both made once when a run starts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/finetuning/instructions.h"
#include "data/samples/samples.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

/// Items in bins, by their numbers.
struct Packs {
  std::vector<std::uint32_t> items;  ///< the first bin's, then the next one's, ...
  std::vector<std::uint32_t> ends;   ///< the end of each bin, in `items`

  std::size_t size() const { return ends.size(); }
  std::span<const std::uint32_t> at(std::size_t bin) const {
    const std::uint32_t first = bin == 0 ? 0 : ends[bin - 1];
    return std::span(items).subspan(first, ends[bin] - first);
  }
};

/// Items of these sizes, each at most `capacity` and at most 2^32 - 1 of them, put into as few bins as best fit finds:
/// the largest items first, each into the fullest bin that has room. Items of a size come in their order.
Packs pack_best_fit(const std::vector<std::uint32_t>& sizes, std::int64_t capacity);

class EncodedInstructions {
 public:
  /// The tokenizer must live until pack().
  EncodedInstructions(const Tokenizer& tokenizer, std::int64_t sequence_length);

  /// The tokens of the parts as one text, and the end of the document, which is learned if the last part is; none where
  /// the text ends with its token already. A token that straddles two parts belongs to the later one
  /// (Encoder::encode_parts). If the first token is learned, the end of a document stands in front of it. One that is
  /// longer than the sequence, whose answer would have to be cut, is left out and counted.
  void add(const Instruction& instruction);
  /// After all have been added: packs them. Error(data) with `path` if none fits.
  void pack(const std::string& path);

  std::uint64_t examples() const { return ends_.size(); }
  std::uint64_t left_out() const { return too_long_ + without_answer_; }
  std::size_t bytes() const;  ///< in memory
  std::uint64_t samples() const { return packs_.size(); }
  std::int64_t sequence_length() const { return sequence_length_; }
  double filled() const;  ///< share of the samples' rows that examples have
  std::int32_t end() const { return end_; }

  /// The last token is a target alone; learned[i] is of tokens[i].
  struct Text {
    std::span<const std::int32_t> tokens;
    std::span<const std::uint8_t> learned;
    std::size_t rows() const { return tokens.size() - 1; }
  };
  Text text(std::uint64_t example) const;
  /// Places of a sample's examples among all, which are sorted by length.
  std::span<const std::uint32_t> pack_at(std::uint64_t pack) const { return packs_.at(pack); }
  /// Places of the examples as long as this place's: [first, second).
  std::pair<std::uint32_t, std::uint32_t> same_length(std::uint32_t place) const;
  std::uint32_t example_at(std::uint32_t place) const { return by_length_[place]; }

 private:
  std::int64_t sequence_length_;
  std::int32_t end_;
  // Until pack(): of texts, and of templates, where special tokens may be written out.
  std::unique_ptr<Encoder> encoder_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint8_t> learned_;
  std::vector<std::uint64_t> ends_;
  std::uint64_t too_long_ = 0, shortest_too_long_ = 0, without_answer_ = 0;  // about examples that are left out
  std::vector<std::uint32_t> by_length_, length_starts_;
  Packs packs_;
};

class InstructionSamples final : public Samples {
 public:
  enum class Order { shuffled, sequential };
  InstructionSamples(std::shared_ptr<const EncodedInstructions> examples, Order order, std::uint64_t seed);

  std::uint64_t samples() const override { return examples_->samples(); }
  std::string description() const override;
  void make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) override;
  std::optional<double> count_per_sample(const BatchSizes& /*sizes*/) const override { return std::nullopt; }
  /// The tokens without padding; for each whether it is learned, and its position.
  std::vector<NamedTokens> show(std::uint64_t sample) override;
  /// The examples of a sample, in their order.
  std::vector<std::uint64_t> examples_of(std::uint64_t sample) const;

 private:
  std::shared_ptr<const EncodedInstructions> examples_;
  Order order_;
  std::uint64_t seed_;
};

}  // namespace megatron
