#include "base/core/distance_buckets.h"

#include <cmath>

#include "base/core/error.h"

namespace megatron {

namespace {

/// The bucket of a distance from 0 among `buckets` of one direction. Never falls as the distance grows.
std::int64_t bucket_of_one_direction(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance) {
  const std::int64_t exact = buckets / 2;
  if (distance < exact) return distance;
  // Single precision as in the original: a distance on the border of two buckets falls where rounding puts it.
  const auto border = static_cast<float>(exact);
  const auto range = static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const float place = std::log(static_cast<float>(distance) / border) / range * static_cast<float>(buckets - exact);
  return std::min(exact + static_cast<std::int64_t>(place), buckets - 1);
}

}  // namespace

bool DistanceBuckets::valid() const {
  return one_direction() >= 2 && buckets <= kMostBuckets && max_distance > one_direction() / 2 &&
         max_distance <= kMostDistance;
}

std::int64_t DistanceBuckets::bucket(std::int64_t distance) const {
  const std::int64_t one = one_direction();
  if (distance <= 0) return bucket_of_one_direction(-distance, one, max_distance);
  return bidirectional ? one + bucket_of_one_direction(distance, one, max_distance) : 0;
}

DistanceRuns::DistanceRuns(const DistanceBuckets& rule) {
  internal_check(rule.valid(), "distance buckets: the numbers of buckets and distances make no rule");
  const auto buckets = static_cast<std::int32_t>(rule.one_direction());
  // first[i]: the least distance of bucket i or a later one, as there may be none in i.
  std::array<std::int32_t, DistanceBuckets::kMostBuckets> first{};
  std::int32_t known = 0;
  for (std::int32_t i = 0; i < buckets; ++i) {
    const bool single = i <= buckets / 2;  // has one distance, or is the first that has several
    std::int64_t low = single ? i : known, high = single ? i : rule.max_distance;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (bucket_of_one_direction(middle, buckets, rule.max_distance) >= i) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    first[static_cast<std::size_t>(i)] = known = static_cast<std::int32_t>(low);
  }
  const auto add = [&](std::int32_t from, std::int32_t bucket) {
    // A run that begins where the last one did leaves nothing of that one.
    if (count_ > 0 && runs_[static_cast<std::size_t>(count_ - 1)].first == from) --count_;
    runs_[static_cast<std::size_t>(count_++)] = {from, bucket};
  };
  add(kLeast, buckets - 1);
  for (std::int32_t i = buckets - 2; i >= 0; --i) add(1 - first[static_cast<std::size_t>(i + 1)], i);
  if (!rule.bidirectional) return;
  for (std::int32_t i = 0; i < buckets; ++i) add(std::max(first[static_cast<std::size_t>(i)], 1), buckets + i);
}

}  // namespace megatron
