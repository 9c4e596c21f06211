// Curves of any length in bounded memory, for pictures of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace megatron {

/// A curve of any length in at most 1,000 buckets of neighbouring points; points come with x increasing.
class DecimatedCurve {
 public:
  struct Bucket {
    double x = 0, mean = 0, minimum = 0, maximum = 0;  // x: the points' mean
    std::int64_t count = 0;
  };

  /// Points whose y is not finite are left out.
  void add(double x, double y);
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Points in a full bucket: 1, 2, 4, ...
  std::int64_t points_per_bucket() const { return stride_; }

 private:
  std::vector<Bucket> buckets_;
  std::int64_t stride_ = 1;
};

/// Buckets on either side that smoothed() takes into a mean; 0: the curve is too short to be smoothed.
std::ptrdiff_t smoothing_reach(std::size_t buckets);

/// The curve's running mean by bucket, over about a thirtieth of the curve. Near the beginning, where losses fall
/// steeply, the window shrinks evenly on both sides, so that the mean does not run ahead of the curve.
std::vector<double> smoothed(const std::vector<DecimatedCurve::Bucket>& buckets);

}  // namespace megatron
