// A checkpoint's numbers in another order than they are stored in: slices one after the other, through a buffer of
// fixed size, whatever the size of the model.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/open_datasets.h"
#include "checkpoint/store/tensor_slices.h"

namespace megatron {

class SliceStream {
 public:
  /// Streams these slices of one dataset, without those that it does not have; their tensors do not count. The reader
  /// must outlive the stream.
  SliceStream(const CheckpointReader& reader, const std::vector<TensorSlice>& slices,
              const std::string& dataset = kValues);

  std::int64_t elements() const { return begins_.back(); }  ///< in all slices together
  const std::vector<TensorSlice>& slices() const { return slices_; }
  /// The index of the slice that has the element at `position`.
  std::size_t slice_at(std::int64_t position) const;
  std::int64_t begin_of(std::size_t slice) const { return begins_[slice]; }

  /// The numbers from element `position` on: at least one. They stay until the next call. Throws as
  /// CheckpointReader::read.
  std::span<const float> read(std::int64_t position);

 private:
  const CheckpointReader& reader_;
  std::string dataset_;
  std::vector<TensorSlice> slices_;
  std::vector<std::int64_t> begins_;  // one for each slice, and the end
  std::vector<float> buffer_;
  OpenDatasets open_;
};

}  // namespace megatron
