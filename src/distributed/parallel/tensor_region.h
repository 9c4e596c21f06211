// TensorRegion: the one idea behind tensor and sequence parallelism.
//
// Between `enter` and `leave` a layer works on whole sequences with a share of its columns or heads; outside, every
// rank holds the whole residual stream (tensor parallel) or a slice of the sequence (plus sequence parallel).
#pragma once

#include "backend/tensor/memory.h"
#include "distributed/comm/meanings.h"
#include "distributed/comm/process_grid.h"

namespace megatron {

/// The two functions:
///
/// |       | tensor parallel | with sequence parallel             |
/// | enter | identity        | all-gather [s/t,b,h] -> [s,b,h]     |
/// | leave | all-reduce      | reduce-scatter [s,b,h] -> [s/t,b,h] |
///
/// The backward of enter is leave and the backward of leave is enter (Korthikanti et al. 2022), so that each layer's
/// backward calls the same two functions, the other way round.
class TensorRegion {
 public:
  /// The grid must outlive the region.
  TensorRegion(const ProcessGrid& grid, bool sequence_parallel)
      : tensor_(grid.tensor()),
        kv_replicas_(grid.shape().kv_replicas),
        sequence_parallel_(sequence_parallel && grid.shape().tensor > 1) {}

  int rank() const { return tensor_.rank(); }
  int size() const { return tensor_.size(); }
  /// Ranks that hold the same part of what has fewer parts than ranks.
  int kv_replicas() const { return kv_replicas_; }
  bool sequence_parallel() const { return sequence_parallel_; }
  Communicator& communicator() const { return tensor_; }

  /// Sequence rows that a rank holds outside the region, of `s`.
  std::int64_t local_sequence_length(std::int64_t s) const { return sequence_parallel_ ? s / size() : s; }
  std::int64_t local_sequence_offset(std::int64_t s) const { return sequence_parallel_ ? rank() * (s / size()) : 0; }

  /// The whole [s, b, h] of an outside tensor: itself, or gathered into `arena`. `place`: the line that an error names.
  ConstTensor enter(Arena& arena, ConstTensor outside, SourcePlace place = SourcePlace::current()) const;
  /// The same without waiting: `whole` may be read once `gathered` has been waited for.
  struct Entering {
    ConstTensor whole;
    Pending gathered;
  };
  Entering start_enter(Arena& arena, ConstTensor outside, SourcePlace place = SourcePlace::current()) const;

  /// Where a layer puts its share of the sum that is to become `outside`: there itself, or a whole one in `arena`.
  Tensor partial_sum_buffer(Arena& arena, Tensor outside) const;
  /// Sums the shares of all ranks into `outside`.
  Pending start_leave(Tensor share, Tensor outside, const Holding<Hold::partial>& said) const;

 private:
  Communicator& tensor_;
  int kv_replicas_;
  bool sequence_parallel_;
};

}  // namespace megatron
