// One attention call as its kernels see it: where the rows of a head are, which keys each query may see, which
// probabilities dropout keeps. Shared by forward and backward, on tensor cores and without.
//
// As on the CPU, every mask of the contract (AttentionMask in backend/ops/ops.h) cuts the keys of a query down to one
// range. Keys and queries count in 32 bits; offsets into tensors in 64.
#pragma once

#include <algorithm>
#include <limits>

#include "backend/ops/attention_shape.h"
#include "backend/ops/dropout_rule.h"
#include "base/core/distance_buckets.h"
#include "cuda/philox.cuh"

namespace megatron::cuda_attention {

inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The most elements of a head: on tensor cores, and by ordinary arithmetic.
inline constexpr int kMaximumTileSize = 128, kMaximumExactSize = 256;

/// Whether attention runs on tensor cores: 16-bit heads of at most kMaximumTileSize, and no bias on capped scores,
/// which published models with a cap do not have.
template <class T>
bool has_tiles(std::int64_t size, const AttentionMask& mask) {
  return kHalf<T> && size <= kMaximumTileSize && !(mask.softcap > 0 && (mask.slopes || mask.distance_bias));
}

/// Rows of one head of one sample, `stride` elements from one to the next.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;

  __device__ T* row(int i) const { return data + i * stride; }
  __device__ Rows from(int first) const { return {row(first), stride}; }
};

/// A [s, b, heads, d] tensor of any strides but the last, which is 1.
template <class T>
struct Heads {
  T* data;
  std::int64_t row, sample, head;

  __device__ Rows<T> rows(int of_sample, int of_head) const {
    return {data + of_sample * sample + of_head * head, row};
  }
};
template <class T>
Heads<const T> heads_of(const ConstTensor& x) {
  return {x.as<T>(), x.stride(0), x.stride(1), x.stride(2)};
}
template <class T>
Heads<T> heads_of(const Tensor& x) {
  return {x.as<T>(), x.stride(0), x.stride(1), x.stride(2)};
}

/// Whether every row of every head consists of aligned vectors of 16 bytes.
template <class T>
bool rows_are_vectors(const ConstTensor& x) {
  const auto* data = static_cast<const T*>(x.data());
  return vectorizable<T>(x.dim(3), data) && x.stride(0) % Vector<T>::size == 0 && x.stride(1) % Vector<T>::size == 0 &&
         x.stride(2) % Vector<T>::size == 0;
}

/// Keys [low, high).
struct KeyRange {
  int low, high;
  __device__ bool has(int key) const { return low <= key && key < high; }
};

/// The ranges of several queries: of their low ends and of their high ends the least and the greatest.
struct KeyBounds {
  int least_low, greatest_low, least_high, greatest_high;

  __device__ bool meet(int low, int high) const { return low < greatest_high && least_low < high; }
  __device__ bool cover(int low, int high) const { return greatest_low <= low && high <= least_high; }
};

/// The keys that the queries of one sample may see.
struct Visibility {
  const std::int32_t* document_starts;  ///< null without
  int queries, keys, query_offset, window, first_key;
  bool bounded;  ///< by the query's own position

  /// Position of a query from the first key's on, as in all below.
  __device__ int position(int query) const { return query_offset + query; }

  /// The range of a query, not normalised where it is empty.
  __device__ KeyRange range(int query) const {
    KeyRange range{0, keys};
    if (bounded) range.high = std::min(range.high, position(query) + 1);
    if (window > 0) range.low = std::max(range.low, position(query) + 1 - window);
    if (document_starts != nullptr) range.low = std::max(range.low, document_starts[query] - first_key);
    return range;
  }

  /// Bounds of the queries [first, first + count), as far as they exist.
  __device__ KeyBounds bounds(int first, int count) const {
    if (first >= queries) return {0, 0, 0, 0};
    const int last = std::min(first + count, queries) - 1;
    const KeyRange begin = range(first), end = range(last);
    return {begin.low, end.low, begin.high, end.high};  // from query to query both ends only move forward
  }
};

/// AttentionMask of the whole call.
struct Masks {
  const std::int32_t *key_lengths, *query_offsets;
  const std::int32_t* document_starts;
  const float* slopes;
  float softcap;  ///< 0 without
  int queries, keys, window, first_key;
  bool bounded;

  Masks(const AttentionShape& shape, const AttentionMask& mask)
      : key_lengths(mask.key_lengths ? mask.key_lengths.as<std::int32_t>() : nullptr),
        query_offsets(mask.query_offsets ? mask.query_offsets.as<std::int32_t>() : nullptr),
        document_starts(mask.document_starts ? mask.document_starts.as<std::int32_t>() : nullptr),
        slopes(mask.slopes ? mask.slopes.as<float>() : nullptr),
        softcap(mask.softcap),
        queries(static_cast<int>(shape.queries)),
        keys(static_cast<int>(shape.keys)),
        window(static_cast<int>(std::clamp<std::int64_t>(mask.window, 0, 1 << 30))),
        first_key(static_cast<int>(mask.first_key)),
        bounded(mask.causal || mask.window > 0) {}

  __device__ Visibility of_sample(int sample) const {
    return {document_starts == nullptr ? nullptr : document_starts + static_cast<std::int64_t>(sample) * queries,
            queries,
            key_lengths == nullptr ? keys : std::max(0, std::min(keys, key_lengths[sample] - first_key)),
            (query_offsets == nullptr ? 0 : query_offsets[sample]) - first_key,
            window,
            first_key,
            bounded};
  }
  /// ALiBi's slope of a head, 0 without.
  __device__ float slope(int head) const { return slopes == nullptr ? 0.0f : slopes[head]; }
};

/// Dropout of the whole call; the device's share of it.
struct Drops {
  std::uint64_t key;
  const std::int32_t* positions;
  std::uint32_t first_sample, first_head, first_group;
  std::int32_t threshold;
  float scale;

  Drops(const Dropout& dropout, const AttentionMask& mask)
      : key(dropout.key),
        positions(dropout.probability > 0 ? dropout.positions.as<std::int32_t>() : nullptr),
        first_sample(static_cast<std::uint32_t>(dropout.first_sample)),
        first_head(static_cast<std::uint32_t>(dropout.first_head)),
        first_group(static_cast<std::uint32_t>(mask.first_key / 8)),
        threshold(0),
        scale(1) {
    if (dropout.probability > 0) {
      const DropoutRule rule(dropout.probability);
      threshold = rule.threshold;
      scale = rule.scale;
    }
  }

  /// The 16-bit draws of keys 8 group ... 8 group + 7 for a query.
  __device__ uint4 draws(int sample, int head, int query, int group) const {
    return philox_words(
        {first_group + static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(positions[query]),
         first_head + static_cast<std::uint32_t>(head), first_sample + static_cast<std::uint32_t>(sample)},
        key);
  }
};

/// T5's bias of distances of the whole call, as place_distances() (cuda/attention_distances.h) lays it down.
struct Distances {
  const float* bias = nullptr;  ///< [a, 2 reach + 1]: of distances -reach to reach, in units of log2; null without
  const DistanceRuns::Run* runs = nullptr;  ///< [count + 1]: the last begins after all distances
  int reach = 0, count = 0, buckets = 0;

  /// The bias of a head, at distance 0.
  __device__ const float* of_head(int head) const { return bias + head * (2 * std::int64_t{reach} + 1) + reach; }
  __device__ float at(const float* head, int distance) const {
    // By value: std::min and std::max choose between addresses, and nvcc then spills both operands for each score.
    const int far = reach;
    return head[distance < -far ? -far : distance > far ? far : distance];
  }
};

/// Features that a kernel on tensor cores is compiled for. Each feature takes registers, so common calls have kernels
/// without the rare ones. The biased kernels test for the bias all the same: behind a branch, its look-ups stay apart
/// from the products, and nvcc spills a third of what it spills without the branch (sm_90, queries' gradients of heads
/// of 128).
enum class Form {
  plain,    ///< none of the following
  general,  ///< dropout, slopes, a scale that is not positive, rows that are not vectors
  biased,   ///< all of that, and a bias of distances
  capped    ///< a soft cap and all of `general` but slopes: the derivative is made of the capped score without a bias
};

/// Arguments of the kernels of both directions.
struct Problem {
  Masks masks;
  Drops drops;
  Distances distances;
  int samples, heads, key_heads, heads_per_key_head, size;
  float scale;

  Problem(const AttentionShape& shape, const AttentionMask& mask, const Dropout& dropout, float score_scale,
          const Distances& bias)
      : masks(shape, mask),
        drops(dropout, mask),
        distances(bias),
        samples(static_cast<int>(shape.samples)),
        heads(static_cast<int>(shape.heads)),
        key_heads(static_cast<int>(shape.key_heads)),
        heads_per_key_head(static_cast<int>(shape.heads_per_key_head)),
        size(static_cast<int>(shape.head_size)),
        scale(score_scale) {}

  /// The form that does it with the fewest registers.
  Form form(bool vectors) const {
    if (masks.softcap > 0) return Form::capped;
    if (distances.bias != nullptr) return Form::biased;
    const bool rare = drops.positions != nullptr || masks.slopes != nullptr || scale <= 0 || !vectors;
    return rare ? Form::general : Form::plain;
  }
};

/// Blocks for `rows` rows of each head of each sample, `block_rows` each; blockIdx is (piece, head, sample).
inline dim3 grid_of(std::int64_t rows, int block_rows, std::int64_t heads, std::int64_t samples) {
  return dim3(static_cast<unsigned>((rows + block_rows - 1) / block_rows), static_cast<unsigned>(heads),
              static_cast<unsigned>(samples));
}

}  // namespace megatron::cuda_attention
