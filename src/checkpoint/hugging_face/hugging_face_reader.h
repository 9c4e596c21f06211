// Numbers of a Hugging Face model on their way to our records and back: which rows of which tensor, and transposed
// where they transpose.
//
// Every tensor is accounted for when the files are opened; after that reading can fail by the disk alone. Memory is
// what is asked for, and of a transposed tensor 16 of its rows. Where numbers are shifted (Gemma's norms), weights far
// from 1 lose their last bits in an export.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/hugging_face/hugging_face_model.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/open_datasets.h"
#include "checkpoint/store/tensor_slices.h"

namespace megatron {

struct HuggingFaceFamily;

/// A checkpoint's records, read as their tensors, one after the other.
class HuggingFaceGather {
 public:
  explicit HuggingFaceGather(const CheckpointReader& source) : source_(source) {}
  /// A whole tensor, row-major as they store it.
  void read(const HuggingFaceTensor& tensor, std::span<float> numbers);

 private:
  const CheckpointReader& source_;
  OpenDatasets open_;
  std::vector<float> scratch_;  // holds the largest tensor whose rows lie differently there
};

/// A tensor's name in the files, some of which have it under another than the family's; that one if they lack it.
std::string name_in_files(const SafetensorsModel& files, const HuggingFaceFamily& family, const std::string& usual);

/// Whether two tensors in the files have the same numbers.
bool same_tensors(const SafetensorsModel& files, const std::string& a, const std::string& b);

/// A model's files, read as our records.
class HuggingFaceReader {
 public:
  /// Error(checkpoint) unless the files have the tensors of the list, in their shapes, and nothing else that counts.
  /// `folder`, which they are of, is for messages.
  HuggingFaceReader(const std::string& folder, SafetensorsModel files, HuggingFaceFormat format,
                    std::vector<HuggingFaceTensor> tensors);
  HuggingFaceReader(const HuggingFaceReader&) = delete;
  HuggingFaceReader& operator=(const HuggingFaceReader&) = delete;

  std::int64_t tensors() const { return static_cast<std::int64_t>(tensors_.size()); }

  /// A whole record as we have it, rows that pad the vocabulary being zero.
  void read(const std::string& record, std::span<float> numbers) const;

  /// All records whole, in the order of their names, without memory.
  std::vector<TensorSlice> slices() const;

 private:
  SafetensorsModel files_;
  std::vector<HuggingFaceTensor> tensors_;
  std::map<std::string, std::pair<const HuggingFaceTensor*, const HuggingFaceTensor::Record*>> records_;
};

}  // namespace megatron
