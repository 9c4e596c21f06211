// KeyValueCache: the keys and values of the tokens so far, of some samples, in each layer of a stage. Owned by who
// decodes; a pass over some of the samples reaches them through Context. Attention appends the rows of the pass, and
// its queries see all rows up to their own. Samples may differ in how many rows they have.
//
// An encoder-decoder's cache also holds the keys and values of its encoder's output: a pass over the encoder sets them,
// and the decoder's cross-attention reads them.
#pragma once

#include <vector>

#include "backend/tensor/memory.h"

namespace megatron {

struct KeyValueCache {
  /// One layer's keys and values, [capacity, b, groups here, d]. In memory the rows of a sample's group lie together.
  struct Layer {
    Tensor keys, values;
  };
  std::vector<Layer> layers;  ///< one stage's
  std::vector<Layer> memory;  ///< one stage's, for the encoder's output: [encoder_rows, b, groups here, d]
  Tensor memory_lengths;      ///< i32 [b]: rows of each sample there
  std::int64_t first_layer = 0;

  static Layer make_layer(Arena& arena, std::int64_t capacity, std::int64_t samples, std::int64_t groups,
                          std::int64_t head_size, DType type) {
    const auto make = [&](const char* what) {
      return arena.allocate(what, {samples, groups, capacity, head_size}, type).swapped(0, 2).swapped(1, 2);
    };
    const Tensor keys = make("cached keys");
    return {keys, make("cached values")};
  }
};

struct CacheSizes {
  std::int64_t capacity = 0;      ///< rows of a sample
  std::int64_t encoder_rows = 0;  ///< rows of its encoder's output; 0 for a model without an encoder
  std::int64_t samples = 0;
};

/// The part of a cache that one pass works on.
struct CachePass {
  const KeyValueCache& cache;
  std::int64_t first_sample = 0;  ///< the pass's first one in the cache; the others follow
  ConstTensor offsets;            ///< i32 [b]: rows of each before the pass
  std::int64_t rows = 0;          ///< that the longest has with it
  std::int64_t memory_rows = 0;   ///< that the longest has of its encoder's output

  /// The pass's samples of a layer, with all rows.
  KeyValueCache::Layer layer(std::int64_t index) const { return of_pass(cache.layers, index); }
  KeyValueCache::Layer memory(std::int64_t index) const { return of_pass(cache.memory, index); }
  ConstTensor memory_lengths() const { return cache.memory_lengths.slice(0, first_sample, offsets.dim(0)); }

 private:
  KeyValueCache::Layer of_pass(const std::vector<KeyValueCache::Layer>& layers, std::int64_t index) const {
    const KeyValueCache::Layer& all = layers[static_cast<std::size_t>(index - cache.first_layer)];
    const std::int64_t samples = offsets.dim(0);
    return {all.keys.slice(1, first_sample, samples), all.values.slice(1, first_sample, samples)};
  }
};

}  // namespace megatron
