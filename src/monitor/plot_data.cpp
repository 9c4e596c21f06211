#include "monitor/plot_data.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "monitor/metrics.h"

namespace megatron {

namespace {

constexpr std::size_t kMostBuckets = 1000, kMostCurves = 8;

void merge_into(DecimatedCurve::Bucket& bucket, const DecimatedCurve::Bucket& other) {
  const auto a = static_cast<double>(bucket.count), b = static_cast<double>(other.count);
  bucket.x = (a * bucket.x + b * other.x) / (a + b);
  bucket.mean = (a * bucket.mean + b * other.mean) / (a + b);
  bucket.minimum = std::min(bucket.minimum, other.minimum);
  bucket.maximum = std::max(bucket.maximum, other.maximum);
  bucket.count += other.count;
}

double number_or_nan(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : std::nan("");
}

std::string text_or(const nlohmann::json& object, const char* name, const char* otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
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

std::vector<double> nice_ticks(double low, double high, int count) {
  std::vector<double> ticks;
  if (!(high > low) || count < 1) return ticks;
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  const double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
  // Counting in whole numbers keeps 0 exactly 0; the tolerance keeps ends that rounding would lose.
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  for (double i = first; i <= last && ticks.size() < 100; ++i)
    ticks.push_back(i * step + 0.0);  // + 0.0: no negative zero
  return ticks;
}

DecimatedCurve* PlotData::curve(Curves& curves, const std::string& name) {
  for (auto& [known, curve] : curves) {
    if (known == name) return &curve;
  }
  if (curves.size() == kMostCurves) return nullptr;
  return &curves.emplace_back(name, DecimatedCurve()).second;
}

std::int64_t PlotData::steps_per_line() const {
  if (train_lines < 2) return 1;
  return std::max<std::int64_t>(1, std::llround((last_step - first_step) / static_cast<double>(train_lines - 1)));
}

namespace {

void add_point(PlotData::Curves& curves, const std::string& name, double x, double y) {
  if (DecimatedCurve* const curve = PlotData::curve(curves, name)) curve->add(x, y);
}

}  // namespace

PlotData read_plot_data(const std::string& metrics_path) {
  PlotData data;
  visit_metrics(metrics_path, [&](const nlohmann::json& object, std::string_view) {
    const auto kind = object.find("kind");
    const double step = number_or_nan(object, "step"), loss = number_or_nan(object, "loss");
    if (kind == object.end()) return;
    if (*kind == "train") {
      if (!std::isfinite(step)) return;
      const bool first = data.train_lines++ == 0;
      if (first) data.first_step = step;
      data.train_loss.add(first ? step : (data.last_step + 1 + step) / 2, loss);
      data.last_step = step;
      if (const auto losses = object.find("losses"); losses != object.end() && losses->is_object() && !losses->empty())
        data.loss_name = losses->begin().key();
      data.learning_rate.add(step, number_or_nan(object, "learning_rate"));
    } else if (*kind == "eval") {
      add_point(data.evaluations, text_or(object, "split", "evaluation"), step, loss);
    } else if (*kind == "task") {
      const std::string name = text_or(object, "name", "task");
      const double accuracy = number_or_nan(object, "accuracy"), by_byte = number_or_nan(object, "accuracy_normalized");
      if (std::isfinite(accuracy)) add_point(data.accuracies, name, step, accuracy);
      if (std::isfinite(by_byte)) add_point(data.accuracies, name + " by byte", step, by_byte);
      if (!std::isfinite(accuracy) && !std::isfinite(by_byte)) add_point(data.evaluations, name, step, loss);
    }
  });
  return data;
}

}  // namespace megatron
