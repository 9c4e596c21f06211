// BatchReader: the micro-batches of one data rank, step after step, read ahead by one step in a thread of its own.
//
// The global batch of a step is the samples [first_sample, first_sample + samples) of the sample order. Micro-batch k
// of data rank r (of d, micro-batch size b) holds the places k·b·d + r·b + (0 .. b-1) of the global batch, as in
// Megatron-LM; so each data rank reads its own samples only, and each of them once.
//
// Owns its host memory (two steps, allocated at the start from where it is told) and its thread. Does not own the token
// source and the order, which must outlive it. Knows nothing of models: which pipeline stage needs tokens or targets is
// the caller's business.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <iosfwd>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "batch/micro_batch.h"
#include "data/sample_order.h"
#include "data/token_dataset.h"
#include "tensor/memory.h"

namespace megatron {

/// The global batch of one step. samples == 0: there is no such step, the run has ended. Of each sample the first
/// `sequence` tokens are used; 0: all of the order's sequence length. The last `padding` samples only fill the batch:
/// their losses have the weight zero, so that the contents must have weights.
struct GlobalBatch {
  std::uint64_t first_sample = 0;
  std::int64_t samples = 0;
  std::int64_t sequence = 0;
  std::int64_t padding = 0;
};

/// Step (0, 1, ...) to its samples; a pure function, called from the reading thread.
using BatchPlan = std::function<GlobalBatch(std::int64_t step)>;

/// How much the losses of one sample's targets count, made from nothing but its tokens [s + 1], of which the first s
/// are inputs and the last s targets: sets weights [s], and returns what the sample adds to the number that the
/// weighted sum is divided by. Pure; called from the reading thread.
using LossWeights = std::function<double(std::span<const std::int32_t> tokens, std::span<float> weights)>;

/// What micro-batches have besides tokens and targets. A document ends with the token `end_of_document`, which belongs
/// to it; what follows begins the next.
struct BatchContents {
  bool document_starts = false, position_ids = false;
  std::int32_t end_of_document = -1;
  LossWeights weights = nullptr;  ///< absent: each target counts once
  bool any() const { return document_starts || position_ids || weights != nullptr; }
};

struct StepBatch {
  std::int64_t step = 0;
  GlobalBatch samples;
  std::vector<MicroBatch> micro_batches;  ///< host memory; what contents do not ask for is empty
  double loss_count = 0;  ///< of this data rank's samples: targets, or what their weights add up to divide by
};

struct BatchShape {
  std::int64_t micro_batch_size = 1;
  std::int64_t most_samples = 0;  ///< largest global batch of the plan; a multiple of micro_batch_size · data_size
  int data_rank = 0, data_size = 1;
};

/// Puts samples together out of the ranges of tokens that the order says they are made of.
class SampleReader {
 public:
  /// Both must outlive the reader.
  SampleReader(TokenSource& source, const SampleOrder& order);
  /// The sequence_length + 1 tokens of a sample, until the next call.
  std::span<const std::int32_t> read(std::uint64_t sample);

 private:
  TokenSource& source_;
  const SampleOrder& order_;
  std::vector<TokenRange> pieces_;
  std::vector<std::int32_t> tokens_;
};

/// starts[i] = the place in `tokens` where token i's document begins: 0, or behind the last end of a document before i.
void find_document_starts(std::span<const std::int32_t> tokens, std::int32_t end_of_document,
                          std::span<std::int32_t> starts);

class BatchReader {
 public:
  /// Starts reading `first_step` at once. `memory` is the host's, perhaps of a kind that copies to a device like
  /// better.
  BatchReader(TokenSource& source, const SampleOrder& order, const BatchShape& shape, BatchPlan plan,
              std::int64_t first_step, Allocator& memory = host_memory(), BatchContents contents = {});
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;
  ~BatchReader();  ///< abandons what is being read

  /// The next step's micro-batches; its tensors stay as they are until the next call. Rethrows what went wrong while
  /// reading. Asking for a step behind the plan's end is an internal error.
  const StepBatch& next();

 private:
  struct Slot {
    Buffer tokens, targets, document_starts, position_ids;  // i32
    Buffer weights;                                         // f32
    StepBatch batch;
  };
  /// One micro-batch's part of a slot.
  struct Columns {
    Tensor tokens, targets, document_starts, position_ids, weights;
  };
  void read_ahead();
  void fill(Slot& slot, std::int64_t step, const GlobalBatch& samples);
  Columns columns(const Slot& slot, std::int64_t micro_batch, std::int64_t sequence) const;
  double place_sample(std::uint64_t sample, std::int64_t column, std::int64_t sequence, bool counts, const Columns& to);
  void place_documents(std::span<const std::int32_t> tokens, std::int64_t column, const Columns& to);

  const SampleOrder& order_;
  BatchShape shape_;
  BatchPlan plan_;
  std::int64_t first_step_;
  SampleReader samples_;
  BatchContents contents_;
  std::vector<std::int32_t> starts_;  // of one sample
  std::vector<float> weights_;        // of one sample
  Slot slots_[2];

  std::mutex mutex_;  // over the four below
  std::condition_variable changed_;
  std::int64_t produced_ = 0, taken_ = 0;  // steps since first_step_; a slot is free when produced_ == taken_
  bool stop_ = false, ended_ = false;
  std::exception_ptr error_;
  std::thread reader_;
};

/// Training samples in order, one JSON object a line: {"sample":0,"tokens":[...],"text":"..."} with the s + 1 tokens of
/// each, and what `decode` makes of them; without it no text. Bytes that are not UTF-8 are replaced.
using DecodeTokens = std::function<std::string(std::span<const std::int32_t> tokens)>;
void print_samples(TokenSource& source, const SampleOrder& order, std::uint64_t first, std::uint64_t count,
                   const DecodeTokens& decode, std::ostream& out);

}  // namespace megatron
