#include "training/step/label_scores.h"

#include <algorithm>
#include <numeric>

#include "distributed/comm/meanings.h"

namespace megatron {

std::int64_t LabelCounts::all_examples() const {
  return std::accumulate(examples.begin(), examples.end(), std::int64_t{0});
}

std::int64_t LabelCounts::all_right() const {
  return std::accumulate(right.begin(), right.end(), std::int64_t{0});
}

double LabelCounts::accuracy() const {
  return static_cast<double>(all_right()) / static_cast<double>(std::max<std::int64_t>(1, all_examples()));
}

std::size_t LabelScores::bytes(const BatchSizes& sizes, std::int64_t classes, std::int64_t micro_batches) {
  return static_cast<std::size_t>(micro_batches * sizes.whole_samples() * classes) * sizeof(float);
}

LabelScores::LabelScores(const ProcessGrid& grid, Device& device, const BatchSizes& sizes, std::int64_t classes,
                         std::int64_t micro_batches)
    : grid_(grid),
      device_(device),
      classes_(classes),
      memory_(device, bytes(sizes, classes, micro_batches)),
      counts_(static_cast<std::size_t>(3 * classes)) {
  const Shape shape = {sizes.whole_samples(), classes};
  const auto each = static_cast<std::size_t>(shape.elements()) * sizeof(float);
  for (std::size_t k = 0; k < static_cast<std::size_t>(micro_batches); ++k) {
    TargetResults& result = results_.emplace_back();
    result.scores = memory_.tensor(shape, DType::f32, k * each);
  }
}

void LabelScores::begin() {
  std::fill(counts_.begin(), counts_.end(), 0.0);
}

void LabelScores::add(std::span<const MicroBatch> micro_batches, const TakeLogits& take) {
  if (!grid_.last_stage() || grid_.at().tensor != 0) return;
  for (std::size_t k = 0; k < micro_batches.size(); ++k) add(micro_batches[k], results_[k].scores, take);
}

void LabelScores::add(const MicroBatch& micro_batch, ConstTensor scores, const TakeLogits& take) {
  const ConstTensor& labels = micro_batch.main.labels;
  const auto n = static_cast<std::size_t>(labels.elements()), classes = static_cast<std::size_t>(classes_);
  std::vector<std::int32_t> right(n);
  std::vector<float> logits(n * classes);
  device_.copy_to_host(right.data(), labels.data(), labels.bytes());
  device_.copy_to_host(logits.data(), scores.data(), scores.bytes());
  const std::int64_t first = micro_batch.first_sample * static_cast<std::int64_t>(n) / micro_batch.samples;
  for (std::size_t i = 0; i < n; ++i) {
    if (take) take(first + static_cast<std::int64_t>(i), std::span(logits).subspan(i * classes, classes));
    if (right[i] < 0) continue;  // it has no label, or only fills the batch
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i * classes);
    const auto chosen = static_cast<std::size_t>(std::max_element(row, row + classes_) - row);
    const auto label = static_cast<std::size_t>(right[i]);
    counts_[label] += 1;
    counts_[classes + label] += chosen == label ? 1 : 0;
    counts_[2 * classes + chosen] += 1;
  }
}

LabelCounts LabelScores::sum() const {
  std::vector<double> all = counts_;
  constexpr std::size_t kTogether = 2048;
  for (std::size_t first = 0; first < all.size(); first += kTogether) {
    grid_.world().all_reduce_values(std::span(all).subspan(first, std::min(kTogether, all.size() - first)), kScores);
  }
  const auto part = [&](std::int64_t which) {
    std::vector<std::int64_t> counts;
    for (std::int64_t i = 0; i < classes_; ++i) {
      counts.push_back(static_cast<std::int64_t>(all[static_cast<std::size_t>(which * classes_ + i)]));
    }
    return counts;
  };
  return {part(0), part(1), part(2)};
}

}  // namespace megatron
