#include "monitoring/metrics/plot_data.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "monitoring/metrics/json_fields.h"

namespace megatron {

namespace {

constexpr std::size_t kMostCurves = 8;

}  // namespace

DecimatedCurve* PlotData::curve(Curves& curves, const std::string& name) {
  for (auto& [known, curve] : curves) {
    if (known == name) return &curve;
  }
  if (curves.size() == kMostCurves) return nullptr;
  return &curves.emplace_back(name, DecimatedCurve()).second;
}

std::int64_t PlotData::steps_per_line() const {
  if (train_lines < 2) return 1;
  return std::llround(std::clamp((last_step - first_step) / static_cast<double>(train_lines - 1), 1.0, 1e9));
}

namespace {

void add_point(PlotData::Curves& curves, const std::string& name, double x, double y) {
  if (DecimatedCurve* const curve = PlotData::curve(curves, name)) curve->add(x, y);
}

}  // namespace

void PlotData::add_train_line(const nlohmann::json& line, double step) {
  if (!std::isfinite(step)) return;
  const bool first = train_lines++ == 0;
  if (first) first_step = step;
  const double middle = first ? step : (last_step + 1 + step) / 2;
  train_loss.add(middle, number_or_nan(line, "loss"));
  last_step = step;
  if (const auto losses = line.find("losses"); losses != line.end() && losses->is_object() && !losses->empty()) {
    loss_name = losses->begin().key();
    for (const auto& [name, value] : losses->items()) {
      if (losses->size() > 1 && value.is_number()) add_point(terms, name, middle, value.get<double>());
    }
  }
  learning_rate.add(step, number_or_nan(line, "learning_rate"));
  gradient_norm.add(step, number_or_nan(line, "grad_norm"));
  throughput.add(middle, number_or_nan(line, "tokens_per_second"));
  loss_scale.add(step, number_or_nan(line, "loss_scale"));
  const double skipped_here = number_or_nan(line, "skipped");
  if (skipped_here > 0) skipped_steps.add(step, skipped_here);
  if (skipped_here > 0) skipped += skipped_here;
}

void PlotData::add(const nlohmann::json& line) {
  const auto kind = line.find("kind");
  const double step = number_or_nan(line, "step"), loss = number_or_nan(line, "loss"),
               accuracy = number_or_nan(line, "accuracy");
  if (kind == line.end()) return;
  if (*kind == "train") {
    add_train_line(line, step);
  } else if (*kind == "eval") {
    const std::string split = text_or(line, "split", "evaluation");
    add_point(evaluations, split, step, loss);
    if (std::isfinite(accuracy)) add_point(accuracies, split, step, 100 * accuracy);
  } else if (*kind == "task") {
    const std::string name = text_or(line, "name", "task");
    const double by_byte = number_or_nan(line, "accuracy_normalized");
    if (std::isfinite(accuracy)) add_point(accuracies, name, step, 100 * accuracy);
    if (std::isfinite(by_byte)) add_point(accuracies, name + " by byte", step, 100 * by_byte);
    if (!std::isfinite(accuracy) && !std::isfinite(by_byte)) add_point(evaluations, name, step, loss);
  }
}

}  // namespace megatron
