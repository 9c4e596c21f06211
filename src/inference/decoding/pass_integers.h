// PassIntegers: what a pass of a decoder reads besides its cache, as it is laid out for a device: the tokens of its
// samples, their positions, and which rows have logits. Knows no model.
#pragma once

#include <cstdint>
#include <vector>

#include "inference/decoding/decoder.h"

namespace megatron {

/// The extents of a pass.
struct PassExtents {
  Stream stream = Stream::main;
  std::int64_t rows = 1, samples = 1;
  std::int64_t wanted = 0;  ///< tokens with logits
};

/// On the device.
struct PassTensors {
  Tensor tokens, position_ids;  ///< i32 [s, b]
  Tensor offsets;               ///< i32 [b]
  Tensor lengths;               ///< i32 [b]: tokens of each sample; absent but in an encoder's pass
  Tensor wanted;                ///< i32 [n]: rows of the s·b with logits; absent where there are none
};

PassTensors allocate_pass(Arena& arena, const PassExtents& extents);

/// On the host. What is after a sample's last token is padding, which no token sees and later ones write over.
struct PassIntegers {
  PassExtents extents;
  std::int64_t longest = 0;  ///< tokens of a sample with this pass, padding included where it has room
  std::vector<std::int32_t> tokens, position_ids, lengths, wanted;

  /// Error(internal) for a pass larger than the decoder was made for.
  PassIntegers(const DecoderPass& pass, const DecoderSizes& sizes);

 private:
  void add(const DecoderPass& pass, std::int64_t capacity, std::size_t sample);
};

}  // namespace megatron
