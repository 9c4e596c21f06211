// BatchReader: the micro-batches of one data rank, step after step, read one step ahead in a separate thread.
//
// The global batch of a step is the samples [first_sample, first_sample + samples). Micro-batch k of data rank r (of d,
// micro-batch size b) holds the places k·b·d + r·b + (0 .. b-1) of the global batch, as in Megatron-LM; so each data
// rank reads its own samples only, and each of them once. Owns its host memory (two steps, allocated at the start) and
// its thread. Knows neither models nor what samples are made of.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "data/samples/samples.h"
#include "models/batch/batch_layout.h"

namespace megatron {

/// The global batch of one step. samples == 0: there is no such step, the run has ended. Of each sample the first
/// `sequence` rows of the main stream are used; 0: all of the layout's. The last `padding` samples only fill the batch:
/// their losses have the weight zero, or no label, so that the layout must have one of these.
struct GlobalBatch {
  std::uint64_t first_sample = 0;
  std::int64_t samples = 0;
  std::int64_t sequence = 0;
  std::int64_t padding = 0;
};

/// Step (0, 1, ...) to its samples; a pure function, called from the reading thread.
using BatchPlan = std::function<GlobalBatch(std::int64_t step)>;

struct StepBatch {
  std::int64_t step = 0;
  GlobalBatch samples;
  std::vector<MicroBatch> micro_batches;  ///< host memory
  std::vector<double> loss_counts;        ///< counts of this data rank's samples, by term of the loss
};

/// The share of each global batch that one data rank reads. Its context ranks read the same samples, and keep their
/// rows (BatchSizes::cut).
struct BatchShare {
  std::int64_t most_samples = 0;  ///< largest global batch of the plan; a multiple of micro-batch size · data_size
  int data_rank = 0, data_size = 1;
};

class BatchReader {
 public:
  /// Starts reading `first_step` at once. `memory` is the host's, perhaps of a kind that copies to a device like
  /// better. The samples must outlive the reader.
  BatchReader(Samples& samples, const BatchLayout& layout, const BatchShare& share, BatchPlan plan,
              std::int64_t first_step, Allocator& memory = host_memory());
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;
  ~BatchReader();  ///< abandons what is being read

  /// The next step's micro-batches; its tensors stay as they are until the next call. Rethrows what went wrong while
  /// reading. Asking for a step after the plan's end is an internal error.
  const StepBatch& next();

 private:
  struct Slot {
    BatchBuffer memory;
    StepBatch batch;
  };
  void read_ahead();
  void fill(Slot& slot, std::int64_t step, const GlobalBatch& samples);
  bool stopped();

  Samples& samples_;
  BatchLayout layout_;
  BatchShare share_;
  BatchPlan plan_;
  std::int64_t first_step_;
  std::vector<double> no_counts_;  // where those of padding go
  Slot slots_[2];
  BatchBuffer whole_;  // one micro-batch before it is cut for a context rank; empty where it is not

  std::mutex mutex_;  // over the four below
  std::condition_variable changed_;
  std::int64_t produced_ = 0, taken_ = 0;  // steps since first_step_; a slot is free when produced_ == taken_
  bool stop_ = false, ended_ = false;
  std::exception_ptr error_;
  std::thread reader_;
};

}  // namespace megatron
