#include "optim/optimizer.h"

namespace megatron {

Optimizer::Optimizer(const ParameterStore& store, const OptimizerSettings& settings, Device& device, Ops& ops)
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
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  state_ = Buffer(device, state_bytes(elements, store.values().dtype()));
  ops.fill(state_.tensor({static_cast<std::int64_t>(state_.bytes() / sizeof(float))}, DType::f32), 0);
  m_ = state_.tensor({elements}, DType::f32);
  v_ = state_.tensor({elements}, DType::f32, bytes);
  master_ = has_master_copy() ? state_.tensor({elements}, DType::f32, 2 * bytes) : store.values();
  scalars_ = Buffer(device, 4 * 64);
  square_sum_ = scalars_.tensor({1}, DType::f64, 0);
  norm_ = scalars_.tensor({1}, DType::f32, 64);
  factor_ = scalars_.tensor({1}, DType::f32, 128);
  skip_ = scalars_.tensor({1}, DType::f32, 192);
}

void Optimizer::initialize(std::uint64_t seed) {
  store_.draw_initial(ops_, seed, master_);
  set_values_from_master();
  ops_.fill(store_.gradients(), 0);
}

void Optimizer::set_values_from_master() {
  if (has_master_copy()) ops_.copy(master_, store_.values());
}

Optimizer::Update Optimizer::update(const ProcessGrid& grid, const UpdateSettings& settings) {
  ops_.fill(square_sum_, 0);
  for (const Range& range : counted_) {
    ops_.square_sum({.x = store_.gradients().slice(0, range.first, range.count), .total = square_sum_});
  }
  grid.model().all_reduce(square_sum_);
  ops_.clip_factor({.square_sum = square_sum_,
                    .maximum = static_cast<float>(settings_.clip_norm),
                    .loss_scale = settings.loss_scale,
                    .norm = norm_,
                    .factor = factor_,
                    .skip = skip_});
  for (const Range& range : ranges_) {
    ops_.adamw({.value = master_.slice(0, range.first, range.count),
                .gradient = store_.gradients().slice(0, range.first, range.count),
                .m = m_.slice(0, range.first, range.count),
                .v = v_.slice(0, range.first, range.count),
                .clip_factor = factor_,
                .skip = skip_,
                .learning_rate = static_cast<float>(settings.learning_rate),
                .beta1 = static_cast<float>(settings_.beta1),
                .beta2 = static_cast<float>(settings_.beta2),
                .epsilon = static_cast<float>(settings_.epsilon),
                .weight_decay = range.decay ? static_cast<float>(settings.weight_decay) : 0.0f,
                .step = updates_ + 1});
  }
  set_values_from_master();
  float norm = 0, skip = 0;
  device_.copy_to_host(&norm, norm_.data(), sizeof norm);
  device_.copy_to_host(&skip, skip_.data(), sizeof skip);
  if (skip == 0) ++updates_;
  return {norm, skip != 0};
}

}  // namespace megatron
