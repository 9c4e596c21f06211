#include "optim/adamw.h"

namespace megatron {

AdamW::AdamW(const ParameterStore& store, const AdamWSettings& settings, Device& device, Ops& ops)
    : store_(store), settings_(settings), device_(device), ops_(ops) {
  for (const Parameter& parameter : store.all()) {
    const std::int64_t first = parameter.first, count = parameter.elements();
    // Alignment gaps hold zeros: a range may span them.
    if (!ranges_.empty() && ranges_.back().decay == parameter.decay) {
      ranges_.back().count = first + count - ranges_.back().first;
    } else {
      ranges_.push_back({first, count, parameter.decay});
    }
    if (parameter.counted) counted_.push_back({first, count, parameter.decay});
  }
  const std::int64_t elements = store.flat_elements();
  moments_ = Buffer(device, state_bytes(elements));
  m_ = moments_.tensor({elements}, DType::f32);
  v_ = moments_.tensor({elements}, DType::f32, static_cast<std::size_t>(elements) * sizeof(float));
  ops.fill(m_, 0);
  ops.fill(v_, 0);
  scalars_ = Buffer(device, 4 * 64);
  square_sum_ = scalars_.tensor({1}, DType::f64, 0);
  norm_ = scalars_.tensor({1}, DType::f32, 64);
  factor_ = scalars_.tensor({1}, DType::f32, 128);
  skip_ = scalars_.tensor({1}, DType::f32, 192);
}

AdamW::Update AdamW::update(const ProcessGrid& grid, double learning_rate) {
  ops_.fill(square_sum_, 0);
  for (const Range& range : counted_) {
    ops_.square_sum({.x = store_.gradients().slice(0, range.first, range.count), .total = square_sum_});
  }
  grid.model().all_reduce(square_sum_);
  ops_.clip_factor({.square_sum = square_sum_,
                    .maximum = static_cast<float>(settings_.clip_norm),
                    .norm = norm_,
                    .factor = factor_,
                    .skip = skip_});
  for (const Range& range : ranges_) {
    ops_.adamw({.value = store_.values().slice(0, range.first, range.count),
                .gradient = store_.gradients().slice(0, range.first, range.count),
                .m = m_.slice(0, range.first, range.count),
                .v = v_.slice(0, range.first, range.count),
                .clip_factor = factor_,
                .skip = skip_,
                .learning_rate = static_cast<float>(learning_rate),
                .beta1 = static_cast<float>(settings_.beta1),
                .beta2 = static_cast<float>(settings_.beta2),
                .epsilon = static_cast<float>(settings_.epsilon),
                .weight_decay = range.decay ? static_cast<float>(settings_.weight_decay) : 0.0f,
                .step = updates_ + 1});
  }
  float norm = 0, skip = 0;
  device_.copy_to_host(&norm, norm_.data(), sizeof norm);
  device_.copy_to_host(&skip, skip_.data(), sizeof skip);
  if (skip == 0) ++updates_;
  return {norm, skip != 0};
}

}  // namespace megatron
