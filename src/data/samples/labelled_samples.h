// LabelledSamples: samples of examples with a label, for a model with a task's head: [CLS] A [SEP] B [SEP] in each
// column, or [CLS] A [SEP]. A classification has one column for each example, a multiple choice one for each choice.
//
// EncodedExamples holds the tokens, made once when a run starts. Sample i is a pure function of i: every pass has all
// examples once, in an order that depends on (seed, pass) alone, or in that of their files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/finetuning/labelled_examples.h"
#include "data/samples/samples.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

class EncodedExamples {
 public:
  /// For examples with `columns` columns of at most `sequence_length` tokens each. Error(data) if the tokenizer lacks
  /// [CLS], [SEP] or [PAD].
  EncodedExamples(const Tokenizer& tokenizer, std::int64_t columns, std::int64_t sequence_length);

  void add(Encoder& encoder, const LabelledExample& example);
  /// After all have been added: gives back memory that was taken for more.
  void shrink();

  std::uint64_t size() const { return labels_.size(); }
  std::int64_t columns() const { return columns_; }
  std::int64_t sequence_length() const { return sequence_length_; }
  std::uint64_t truncated() const { return truncated_; }  ///< examples of which a text was cut
  std::size_t bytes() const;                              ///< in memory
  std::int32_t label(std::uint64_t example) const { return labels_[example]; }
  /// The tokens of one column, with [CLS] and [SEP]; the first `first` are of type 0.
  struct Text {
    std::span<const std::int32_t> tokens;
    std::size_t first = 0;
  };
  Text text(std::uint64_t example, std::int64_t column) const;
  std::int32_t pad() const { return ids_.pad; }

 private:
  /// Cuts tokens off the end of the longer one (of equals b), until both fit. Whether there was something to cut.
  bool truncate(std::vector<std::int32_t>& a, std::vector<std::int32_t>& b, std::size_t most) const;

  SpecialIds ids_;
  std::int64_t columns_, sequence_length_;
  std::vector<std::int32_t> tokens_, labels_;
  std::vector<std::uint64_t> ends_;   // ends of each column's tokens
  std::vector<std::uint32_t> first_;  // by column: tokens of type 0
  std::uint64_t truncated_ = 0;
  std::vector<std::int32_t> a_, b_;  // the text that is being encoded
};

class LabelledSamples final : public Samples {
 public:
  enum class Order { shuffled, sequential };
  LabelledSamples(std::shared_ptr<const EncodedExamples> examples, Order order, std::uint64_t seed);

  std::uint64_t samples() const override { return examples_->size(); }
  std::string description() const override;
  void make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) override;
  std::optional<double> count_per_sample(const BatchSizes& /*sizes*/) const override { return 1.0; }
  /// The tokens of all columns, their types, and the label.
  std::vector<NamedTokens> show(std::uint64_t sample) override;
  /// The example that a sample is.
  std::uint64_t example_of(std::uint64_t sample) const;

 private:
  std::shared_ptr<const EncodedExamples> examples_;
  Order order_;
  std::uint64_t seed_;
};

}  // namespace megatron
