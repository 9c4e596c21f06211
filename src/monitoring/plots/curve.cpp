#include "monitoring/plots/curve.h"

#include <algorithm>
#include <cmath>

namespace megatron {

namespace {

constexpr std::size_t kMostBuckets = 1000;

void merge_into(DecimatedCurve::Bucket& bucket, const DecimatedCurve::Bucket& other) {
  const auto a = static_cast<double>(bucket.count), b = static_cast<double>(other.count);
  bucket.x = (a * bucket.x + b * other.x) / (a + b);
  bucket.mean = (a * bucket.mean + b * other.mean) / (a + b);
  bucket.minimum = std::min(bucket.minimum, other.minimum);
  bucket.maximum = std::max(bucket.maximum, other.maximum);
  bucket.count += other.count;
}

}  // namespace

void DecimatedCurve::add(double x, double y) {
  if (!std::isfinite(x) || !std::isfinite(y)) return;
  const Bucket point{.x = x, .mean = y, .minimum = y, .maximum = y, .count = 1};
  if (!buckets_.empty() && buckets_.back().count < stride_) {
    merge_into(buckets_.back(), point);
    return;
  }
  if (buckets_.size() == kMostBuckets) {
    for (std::size_t i = 0; i < kMostBuckets / 2; ++i) {
      Bucket pair = buckets_[2 * i];
      merge_into(pair, buckets_[2 * i + 1]);
      buckets_[i] = pair;
    }
    buckets_.resize(kMostBuckets / 2);
    stride_ *= 2;
  }
  buckets_.push_back(point);
}

std::ptrdiff_t smoothing_reach(std::size_t buckets) {
  return static_cast<std::ptrdiff_t>(buckets / 60);
}

std::vector<double> smoothed(const std::vector<DecimatedCurve::Bucket>& buckets) {
  const auto size = static_cast<std::ptrdiff_t>(buckets.size());
  const std::ptrdiff_t reach = smoothing_reach(buckets.size());
  std::vector<double> means;
  means.reserve(buckets.size());
  for (std::ptrdiff_t i = 0; i < size; ++i) {
    const std::ptrdiff_t here = std::min(reach, i);
    DecimatedCurve::Bucket window = buckets[i - here];
    for (std::ptrdiff_t k = i - here + 1; k <= std::min(i + here, size - 1); ++k) merge_into(window, buckets[k]);
    means.push_back(window.mean);
  }
  return means;
}

}  // namespace megatron
