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

/// Buckets on either side that smoothed() takes into a mean; 0: the curve is too short to be smoothed.
std::ptrdiff_t smoothing_reach(std::size_t buckets);

/// The curve's running mean by bucket, over about a thirtieth of the curve. Near the beginning, where losses fall
/// steeply, the window shrinks evenly on both sides, so that the mean does not run ahead of the curve.
std::vector<double> smoothed(const std::vector<DecimatedCurve::Bucket>& buckets);

/// Ticks at 1, 2 or 5 times a power of ten inside [low, high]: at most about `count`; none if high ≤ low.
std::vector<double> nice_ticks(double low, double high, int count);

struct PlotData {
  DecimatedCurve train_loss;                 // at the middle of the steps that each line is the mean of
  DecimatedCurve learning_rate;              // over steps
  std::string loss_name = "language_model";  // of the training loss; evaluations are always this
  using Curves = std::vector<std::pair<std::string, DecimatedCurve>>;
  Curves evaluations;                    // (split, or task without an accuracy; loss over steps) as first met
  Curves accuracies;                     // (task, accuracy over steps); one by bytes has " by byte" behind its name
  double first_step = 0, last_step = 0;  // of the training lines
  std::int64_t train_lines = 0;

  /// Steps that a training line is the mean of, as most are; 1 if there are fewer than two lines.
  std::int64_t steps_per_line() const;

  /// The curve of this name, new if there is none; null when there are eight others already.
  static DecimatedCurve* curve(Curves& curves, const std::string& name);
};

/// Reads a metrics.jsonl; empty curves if there is none.
PlotData read_plot_data(const std::string& metrics_path);

}  // namespace megatron
