// MicroBatch: views of the tensors of one micro-batch, and its place in the global batch. A stream is the rows of
// tokens that travel through layers together: a decoder has one, an encoder-decoder has two of different lengths.
// Which of the tensors a model uses, and their memory, is the business of batch_layout.h. Knows no model.
#pragma once

#include <cstdint>

#include "backend/tensor/tensor.h"

namespace megatron {

enum class Stream {
  main,     ///< the one that the loss is on
  encoder,  ///< an encoder-decoder's other one
};

/// The tensors of one stream: rows are sequence positions, columns are samples. Empty where a model has no use for one.
/// A context rank has the rows of two chunks of the sequence (base/core/zig_zag.h), in this order.
struct Rows {
  ConstTensor tokens;        ///< i32 [s, b]
  ConstTensor types;         ///< i32 [s, b]: which of a pair of texts each token belongs to, 0 or 1
  ConstTensor position_ids;  ///< i32 [s, b]: rows of the position table, or turns of rotary embedding
  ConstTensor positions;     ///< i32 [s]: global sequence position of each row (masks and randomness)
  ConstTensor chunk_starts;  ///< i32 [2, b]: position of the first row of each chunk, where context ranks divide them
  ConstTensor whole_positions;  ///< i32 [all rows]: 0, 1, ...; where attention has the rows of all context ranks
  ConstTensor document_starts;  ///< i32 [b, s]: first row that each may attend to; [2, b, s/2] by chunks, or, where
                                ///< attention has them, of all rows
  ConstTensor lengths;          ///< i32 [b]: rows at or past it are padding, which no row attends to
  ConstTensor targets;          ///< i32 [s, b]
  ConstTensor weights;          ///< f32 [s, b]: of the targets' losses; empty: each counts once
  ConstTensor labels;         ///< i32 [b]: class of each sample; -1: it has none. Where several columns make a sample,
                              ///< [b / columns]: which of them is right
  std::int64_t sequence = 0;  ///< s: rows of this rank, all of the sequence unless context ranks divide it
};

struct MicroBatch {
  Rows main, encoder;
  std::int64_t first_sample = 0;  ///< column 0 is this sample of the global batch
  std::int64_t samples = 0;       ///< b

  const Rows& rows(Stream stream) const { return stream == Stream::main ? main : encoder; }
  Rows& rows(Stream stream) { return stream == Stream::main ? main : encoder; }
};

}  // namespace megatron
