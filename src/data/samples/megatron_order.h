// MegatronOrder: the sample order of one of Megatron's data sets, so that a run can move here. Megatron-LM of November
// 2022 and megatron-core 0.16 make it alike; they differ in the splits (split.h) and blends (blend.h) around it.
#pragma once

#include <mutex>
#include <span>

#include "data/samples/sample_order.h"

namespace megatron {

class NumpyRandom;

/// Numbers below 2^32 in half the space of others.
class CompactIndex {
 public:
  CompactIndex() = default;
  /// With room for `size` numbers below `end`.
  CompactIndex(std::uint64_t size, std::uint64_t end);
  static std::uint64_t bytes_each(std::uint64_t end) { return end > std::uint64_t{1} << 32 ? 8 : 4; }
  std::uint64_t operator[](std::uint64_t i) const { return wide_.empty() ? narrow_[i] : wide_[i]; }
  std::uint64_t size() const { return narrow_.size() + wide_.size(); }
  /// Appends the numbers [first, end), `copies` times over, in the order of `random`.
  void append_shuffled(std::uint64_t first, std::uint64_t end, std::uint64_t copies, NumpyRandom& random);

 private:
  bool is_wide_ = false;
  std::vector<std::uint32_t> narrow_;
  std::vector<std::uint64_t> wide_;
};

/// Its three indices, equal element by element to Megatron's for the same documents, sequence length s, seed and number
/// of samples N:
///   document index  the documents of E passes, shuffled together; E is the least that gives N samples. If fewer than
///                   80 % of a pass's samples are wanted of the last pass, that one is shuffled separately, at the end.
///   sample index    sample k begins at token k·s of the documents in that order and shares its last token with k + 1
///   shuffle index   which k is trained i-th; with a separate pass at the end, that pass's samples come last
/// All shuffles are numpy's, of one generator. So the order depends on N: another N is another order from the start on.
///
/// The sample index is not kept: it follows from the lengths of the documents. The other two cannot be computed in
/// part; they take 4 bytes (8 beyond 2^32) per element and are built when the first sample is asked for: ranks that
/// read no samples have none. All arithmetic is 64-bit. Megatron-LM of 2022 keeps the sample index in int32, which
/// overflows at 2^31 entries of the document index, and refuses (assert) small data of which the last pass is used to
/// its last sample; neither is copied.
class MegatronOrder final : public SampleOrder {
 public:
  /// Over the documents [first_document, end_document); document d has the tokens [starts[d], starts[d + 1]), and may
  /// be empty. `starts` must outlive the order, `name` is its data.order, for messages. ErrorKind::data if there are no
  /// tokens, or an index of more than 2^36 elements would be needed.
  MegatronOrder(std::span<const std::uint64_t> starts, std::uint64_t first_document, std::uint64_t end_document,
                std::int64_t sequence_length, std::uint32_t seed, std::uint64_t wanted_samples,
                std::string name = "megatron");

  /// At least the wanted samples. Asking for more is ErrorKind::configuration: there is nothing after the last one.
  std::uint64_t samples() const override { return samples_; }
  void locate(std::uint64_t sample, std::vector<TokenRange>& ranges) const override;
  std::string description() const override;

  std::uint64_t wanted_samples() const { return wanted_samples_; }
  std::uint64_t epochs() const { return epochs_; }
  bool separate_last_epoch() const { return separate_last_epoch_; }

  // The indices, for those who compare.
  struct TextPosition {
    std::uint64_t position, offset;  ///< in the document index; in that document
    bool operator==(const TextPosition&) const = default;
  };
  std::uint64_t document_entries() const { return epochs_ * (end_document_ - first_document_); }
  std::uint64_t document_index(std::uint64_t position) const;  ///< position < document_entries()
  TextPosition sample_index(std::uint64_t k) const;            ///< k <= samples()
  std::uint64_t shuffle_index(std::uint64_t i) const;          ///< i < samples()

 private:
  void build() const;
  void try_to_build() const;
  std::uint64_t index_bytes() const;
  std::uint64_t length_at(std::uint64_t position) const;

  std::span<const std::uint64_t> starts_;
  std::uint64_t first_document_, end_document_, tokens_per_epoch_, wanted_samples_;
  std::uint32_t seed_;
  std::string name_;
  std::uint64_t epochs_ = 0, samples_ = 0, samples_before_last_epoch_ = 0;
  bool separate_last_epoch_ = false;

  mutable std::once_flag built_;
  mutable CompactIndex documents_, shuffle_;
  mutable std::vector<std::uint64_t> block_tokens_;  // tokens before every kBlock-th entry of documents_
};

}  // namespace megatron
