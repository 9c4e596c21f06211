// Arguments of the verbs that a layer with experts has in addition to those of routing: two parts of a row are mixed by
// weights that the row decides, and the router's input is made noisy.
//
// Part of ops.h, whose conventions hold.
#pragma once

#include <cstdint>

#include "backend/tensor/tensor.h"

namespace megatron {

/// y = weight_a · a + weight_b · b, row by row. Of one logit per row the weights are 1 and its sigmoid; of two, their
/// softmax.
struct MixRowsForwardArgs {
  ConstTensor logits;  ///< f32 [n, 1] or [n, 2]
  ConstTensor bias;    ///< [columns of logits], optional: added to them
  ConstTensor a, b;    ///< [n, h]
  Tensor y;            ///< sets, [n, h]; may alias a or b
};
struct MixRowsBackwardArgs {
  ConstTensor logits, bias, a, b;  ///< as in forward; of one logit without a
  ConstTensor dy;                  ///< [n, h]
  Tensor da;                       ///< sets, [n, h]; may alias a. Of one logit absent: it is dy
  Tensor db;                       ///< sets, [n, h]; may alias b
  Tensor dlogits;                  ///< sets, f32, as logits: the gradient of logits + bias
};

/// Factors in (1 - amount, 1 + amount), as a pure function of (key, sample, position, element): 1 + amount ·
/// ((2 · draw + 1) / 65536 - 1), with the 16-bit draws that Dropout (ops.h) describes, of head 0.
struct Jitter {
  float amount = 0;               ///< 0: all are 1, nothing else is read
  std::uint64_t key = 0;          ///< random_key(seed, step, site)
  ConstTensor positions;          ///< i32 [s]: global position of each sequence row
  std::int64_t first_sample = 0;  ///< column b is sample first_sample + b of the global batch
};

/// y = factors · x, which is its own backward.
struct JitterRowsArgs {
  ConstTensor x;  ///< [s, b, h]
  Tensor y;       ///< [s, b, h] sets, or adds if accumulate; may alias x
  bool accumulate = false;
  Jitter jitter;
};

}  // namespace megatron
