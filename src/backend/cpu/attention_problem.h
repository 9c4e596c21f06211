// AttentionProblem: one attention call, checked, and what each of its queries may see. Shared by forward and backward.
//
// Every mask of the contract (AttentionMask in backend/ops/ops.h) cuts the keys of a query down to one range, so that
// the kernels know no kinds of mask, only ranges. Owns nothing; the tensors must outlive it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "backend/ops/attention_shape.h"

namespace megatron {

/// Extents of a tile of scores: few query rows, as the causal diagonal wastes half a square of them, and many key
/// columns, as every tile of a row costs a rescaling.
inline constexpr std::int64_t kQueryBlock = 32, kKeyBlock = 512;

/// Keys [low, high).
struct KeyRange {
  std::int64_t low = 0, high = 0;
  bool empty() const { return low >= high; }
  bool meets(KeyRange other) const { return low < other.high && other.low < high; }
  void cover(KeyRange other) {
    if (other.empty()) return;
    *this = empty() ? other : KeyRange{std::min(low, other.low), std::max(high, other.high)};
  }
};

/// Up to kQueryBlock consecutive queries of one sample, and what each of them sees.
struct QueryBlock {
  std::int64_t sample = 0, first = 0, rows = 0;
  std::array<KeyRange, kQueryBlock> visible;
  KeyRange all;  ///< covers the ranges of all rows

  bool sees(KeyRange keys) const;  ///< whether any row sees any of these keys
};

class AttentionProblem : public AttentionShape {
 public:
  /// As AttentionShape.
  AttentionProblem(const char* verb, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                   const AttentionMask& mask, const Dropout& dropout)
      : AttentionShape(verb, q, k, v, mask, dropout), mask_(mask) {
    if (mask.distance_bias) distance_runs_ = DistanceRuns(mask.distance_buckets);
  }

  /// Queries first ... of `sample`, at most kQueryBlock of them.
  QueryBlock query_block(std::int64_t sample, std::int64_t first) const;
  /// Covers the keys that some query of the sample sees.
  KeyRange seen(std::int64_t sample) const;
  /// ALiBi's slope of a head, 0 without.
  float slope(std::int64_t head) const { return mask_.slopes ? mask_.slopes.as<float>()[head] : 0.0f; }
  /// 0 without.
  float softcap() const { return mask_.softcap; }
  bool has_distance_bias() const { return static_cast<bool>(mask_.distance_bias); }
  std::int64_t distance_buckets() const { return mask_.distance_buckets.buckets; }
  /// The bias of a head by bucket, if there is one; and which distances a bucket has.
  template <class T>
  const T* distance_bias(std::int64_t head) const {
    return mask_.distance_bias.as<T>() + head * distance_buckets();
  }
  const DistanceRuns& distance_runs() const { return distance_runs_; }
  /// Position of the first query from the first key's on: a distance is that of the rows, less this.
  std::int64_t query_offset(std::int64_t sample) const {
    return (mask_.query_offsets ? mask_.query_offsets.as<std::int32_t>()[sample] : 0) - mask_.first_key;
  }
  /// Position of key row 0.
  std::int64_t first_key() const { return mask_.first_key; }

 private:
  KeyRange visible(std::int64_t sample, std::int64_t query) const;

  const AttentionMask& mask_;
  DistanceRuns distance_runs_;  // read with a bias of distances only
};

}  // namespace megatron
