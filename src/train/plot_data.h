// What a loss plot shows, in bounded memory however long the run was: decimated curves out of metrics.jsonl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
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

/// The curve's running mean by bucket, over about a thirtieth of the curve. Near the beginning, where losses fall
/// steeply, the window shrinks evenly on both sides, so that the mean does not run ahead of the curve.
std::vector<double> smoothed(const std::vector<DecimatedCurve::Bucket>& buckets);

/// Ticks at 1, 2 or 5 times a power of ten inside [low, high]: at most about `count`; none if high ≤ low.
std::vector<double> nice_ticks(double low, double high, int count);

struct PlotData {
  DecimatedCurve train_loss, learning_rate;                         // over steps
  std::vector<std::pair<std::string, DecimatedCurve>> evaluations;  // (split, loss over steps) as first met
  double last_step = 0;                                             // of the training lines

  /// The split's curve, new if it has none; null when there are eight others already.
  DecimatedCurve* evaluation(const std::string& split);
};

/// Reads a metrics.jsonl; empty curves if there is none.
PlotData read_plot_data(const std::string& metrics_path);

}  // namespace megatron
