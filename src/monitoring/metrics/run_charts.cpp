#include "monitoring/metrics/run_charts.h"

#include <fmt/format.h>

#include <algorithm>

namespace megatron {

namespace {

/// One over all steps of the run.
Chart chart_of(const PlotData& plot, const std::string& title, const std::string& unit) {
  return {.title = title, .unit = unit, .first_step = plot.first_step, .last_step = plot.last_step};
}

Chart curves_chart(Chart chart, const PlotData::Curves& curves, bool marked) {
  for (const auto& [name, curve] : curves) chart.add({.name = name, .smooth = !marked, .marked = marked}, curve);
  return chart;
}

Chart single_chart(Chart chart, const DecimatedCurve& curve, bool smooth) {
  chart.add({.name = chart.title, .smooth = smooth}, curve);
  chart.from_zero = true;
  return chart;
}

/// Tells how many steps a point of the training curve is the mean of, and its band if it has one.
std::string training_name(const PlotData& plot) {
  const std::int64_t steps = plot.steps_per_line();
  const std::string line = steps == 1 ? "every step" : fmt::format("mean of {} steps", steps);
  const std::int64_t reach = smoothing_reach(plot.train_loss.buckets().size());
  if (reach == 0) return "training, " + line;
  const std::int64_t window = steps * plot.train_loss.points_per_bucket() * (2 * reach + 1);
  return fmt::format("training, mean of about {} steps (band: {})", window, line);
}

}  // namespace

std::vector<Chart> loss_charts(const PlotData& plot) {
  const bool one_unit = plot.loss_name == "language_model" || plot.evaluations.empty();
  const std::string nats = "nats per token";
  std::vector<Chart> charts = {chart_of(plot, "Loss", plot.loss_name == "language_model" ? nats : plot.loss_name)};
  charts[0].add({.name = training_name(plot), .smooth = true}, plot.train_loss);
  if (!one_unit) charts.push_back(chart_of(plot, "Evaluations", nats));
  charts.back() = curves_chart(charts.back(), plot.evaluations, true);
  if (!plot.accuracies.empty()) charts.push_back(curves_chart(chart_of(plot, "Accuracy", "%"), plot.accuracies, true));
  charts.push_back(single_chart(chart_of(plot, "Learning rate", ""), plot.learning_rate, false));
  return charts;
}

std::vector<Chart> health_charts(const PlotData& plot) {
  std::vector<Chart> charts;
  if (!plot.terms.empty()) charts.push_back(curves_chart(chart_of(plot, "Terms of the loss", ""), plot.terms, false));
  charts.push_back(single_chart(chart_of(plot, "Gradient norm", "before clipping"), plot.gradient_norm, true));
  charts.push_back(single_chart(chart_of(plot, "Throughput", "tokens per second, whole job"), plot.throughput, true));
  const auto& scales = plot.loss_scale.buckets();
  const bool scaled = std::any_of(scales.begin(), scales.end(), [](const auto& b) { return b.maximum != 1; });
  if (scaled) charts.push_back(single_chart(chart_of(plot, "Loss scale", ""), plot.loss_scale, false));
  if (plot.skipped == 0) return charts;
  Chart skipped = chart_of(plot, "Skipped steps", "loss or gradient not finite");
  skipped.add({.name = "skipped since the line before", .marked = true, .joined = false}, plot.skipped_steps);
  skipped.from_zero = true;
  charts.push_back(std::move(skipped));
  return charts;
}

}  // namespace megatron
