// T5's buckets of distances (Raffel et al. 2020): attention scores get a learned bias by the bucket that the distance
// from query to key falls into. DistanceBuckets is the rule. DistanceRuns is the same rule as a list of intervals, for
// kernels: it does not allocate, and building it costs about a hundred logarithms.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace megatron {

/// The first half of the buckets is one distance each, the others grow with the logarithm up to max_distance; the last
/// has all that is farther. If bidirectional, keys before the query have the first half of all buckets, those after
/// it the second; if not, keys ahead of it are in bucket 0. The bits of Hugging Face's T5: logarithms are float's.
struct DistanceBuckets {
  bool bidirectional = true;
  std::int64_t buckets = 32;
  std::int64_t max_distance = 128;

  static constexpr std::int64_t kMostBuckets = 128, kMostDistance = 1 << 20;

  /// Whether the rule means anything: at least 2 buckets for a direction, no more in all than kMostBuckets, and
  /// max_distance past those of one distance each, up to kMostDistance.
  bool valid() const;
  /// The bucket of `distance` = key position - query position, from 0 to buckets - 1.
  std::int64_t bucket(std::int64_t distance) const;
  /// Buckets for the keys of one direction.
  std::int64_t one_direction() const { return bidirectional ? buckets / 2 : buckets; }
};

/// The distances in ascending order, cut into runs of one bucket each.
class DistanceRuns {
 public:
  /// One run reaches to the next one's first distance, the last without end; the first begins at kLeast.
  struct Run {
    std::int32_t first, bucket;
  };
  static constexpr std::int32_t kLeast = INT32_MIN;

  DistanceRuns() = default;                               ///< there is none
  explicit DistanceRuns(const DistanceBuckets& buckets);  ///< an internal error if those are not valid

  constexpr const Run* begin() const { return runs_.data(); }
  constexpr const Run* end() const { return runs_.data() + count_; }
  std::int32_t count() const { return count_; }
  /// Distances farther than this, either way, are in the same bucket as this.
  std::int32_t reach() const { return std::max(1 - begin()[1].first, end()[-1].first); }

  /// Calls body(low, high, bucket) for each run's part of the distances [low, high), in ascending order.
  template <class Body>
  void each(std::int64_t low, std::int64_t high, const Body& body) const {
    const Run* run =
        std::upper_bound(begin(), end(), low, [](std::int64_t x, const Run& r) { return x < r.first; }) - 1;
    for (; low < high; ++run) {
      const std::int64_t stop = run + 1 == end() ? high : std::min<std::int64_t>(high, run[1].first);
      body(low, stop, run->bucket);
      low = stop;
    }
  }

 private:
  std::array<Run, DistanceBuckets::kMostBuckets> runs_{};
  std::int32_t count_ = 0;
};

}  // namespace megatron
