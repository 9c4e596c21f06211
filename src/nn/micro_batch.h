// MicroBatch: the integers of one micro-batch and its place in the global batch. A stream is the rows of tokens that
// travel through layers together: a decoder has one, an encoder-decoder has two with lengths of their own. Knows
// nothing of models and schedules. All tensors are the device's.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace megatron {

enum class Stream {
  main,     ///< the one that the loss is on
  encoder,  ///< an encoder-decoder's other one
};

/// The tokens of one stream: rows are sequence positions, columns are samples.
struct Rows {
  ConstTensor tokens;           ///< i32 [s, b]; needed where they are embedded
  ConstTensor position_ids;     ///< i32 [s, b]: rows of the position table, or turns of rotary embedding
  ConstTensor positions;        ///< i32 [s]: global sequence position of each row (masks and randomness)
  ConstTensor document_starts;  ///< optional, i32 [b, s]: first row that each may attend to; on every stage
  std::int64_t sequence = 0;    ///< s
};

struct MicroBatch {
  Rows main, encoder;
  ConstTensor targets;            ///< i32 [s, b] of the main stream; needed on the last stage
  ConstTensor weights;            ///< optional, f32 [s, b]: of the targets' losses; on the last stage
  std::int64_t first_sample = 0;  ///< column 0 is this sample of the global batch
  std::int64_t samples = 0;       ///< b
  double gradient_scale = 1;      ///< seed of the loss' gradient: coefficient · loss scale / count of the global batch

  const Rows& rows(Stream stream) const { return stream == Stream::main ? main : encoder; }
};

}  // namespace megatron
