#include "optim/optimizer.h"

#include <algorithm>
#include <cstring>

#include "comm/poll_backoff.h"

namespace megatron {

namespace {

constexpr float kSkipForLoss = 2;  // in addition to the 1 of a bad gradient

std::int64_t elements_of(const std::vector<FlatRange>& ranges) {
  std::int64_t sum = 0;
  for (const FlatRange& range : ranges) sum += range.count;
  return sum;
}

Tensor in(Tensor flat, const FlatRange& range) {
  return flat.slice(0, range.first, range.count);
}

}  // namespace

UpdateRule update_rule(const std::string& name) {
  if (name == "adamw") return UpdateRule::adamw;
  if (name == "sgd") return UpdateRule::sgd;
  fail(ErrorKind::configuration, "optimizer.name = \"{}\" is not available: use \"adamw\" or \"sgd\"", name);
}

std::size_t Optimizer::state_bytes(const ParameterStore& store, int shard, const OptimizerSettings& settings) {
  const int tensors = settings.moments() + (store.values().dtype() == DType::f32 ? 0 : 1);
  return static_cast<std::size_t>(tensors * elements_of(store.owned_by(shard))) * sizeof(float) + kScalarBytes;
}

Optimizer::Optimizer(const ParameterStore& store, const OptimizerSettings& settings, Device& device, Ops& ops,
                     ParameterAllGather* gathers)
    : store_(store), settings_(settings), device_(device), ops_(ops), gathers_(gathers) {
  internal_check(gathers != nullptr || store.shards() == 1, "an optimizer of shards needs gathers");
  const int shard = gathers != nullptr ? gathers->shard() : 0;
  owned_ = store.owned_by(shard);
  std::int64_t elements = 0;
  for (const FlatRange& range : owned_) {
    positions_.push_back(elements);
    elements += range.count;
    std::vector<Part>& parts = parts_.emplace_back();
    bool follows_owner = false;
    for (const Parameter& parameter : store.all()) {
      for (const FlatRange& part : ParameterStore::parts_in(parameter, {range})) {
        // Gaps hold zeros: one range, and one launch, spans the neighbours that count.
        if (parameter.owner) {
          if (!follows_owner) in_norm_.push_back(part);
          in_norm_.back().count = part.end() - in_norm_.back().first;
        }
        follows_owner = parameter.owner;
        // Every tensor rank has computed the gradient of such a copy by itself: a bad number may be in one alone. Of
        // other copies it was summed over all that hold one, and is in the norm through the owner's.
        if (!parameter.owner && parameter.tensor == Placement::replica) copies_.push_back(part);
        // Gaps hold zeros: a part may span them.
        if (parts.empty() || parts.back().decay != parameter.decay) parts.push_back({part, parameter.decay});
        parts.back().range.count = part.end() - parts.back().range.first;
      }
    }
  }
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  memory_ = Buffer(device, state_bytes(store, shard, settings) - kScalarBytes);
  std::size_t taken = 0;
  const auto take = [&](bool wanted, Tensor& tensor) {
    if (!wanted) return;
    tensor = memory_.tensor({elements}, DType::f32, taken);
    ops.fill(tensor, 0);
    taken += bytes;
  };
  take(settings.moments() >= 1, m_);
  take(settings.moments() >= 2, v_);
  take(has_master_copy(), master_copy_);
  scalars_ = Buffer(device, kScalarBytes);
  sums_ = scalars_.tensor({sizeof(StepSums) / sizeof(double)}, DType::f64, offsetof(Numbers, sums));
  norm_ = scalars_.tensor({1}, DType::f32, offsetof(Numbers, norm));
  skip_ = scalars_.tensor({1}, DType::f32, offsetof(Numbers, skip));
  model_square_sum_ = scalars_.tensor({1}, DType::f64, 64);
  zero_ = scalars_.tensor({1}, DType::f64, 72);
  factor_ = scalars_.tensor({1}, DType::f32, 128);
  bad_loss_ = scalars_.tensor({1}, DType::f32, 192);
  unused_ = scalars_.tensor({2}, DType::f32, 196);
  ops.fill(zero_, 0);
  numbers_here_ = Buffer(device.pinned(), sizeof(Numbers));
}

Optimizer::State Optimizer::state(const FlatRange& range) const {
  const auto owner = std::partition_point(owned_.begin(), owned_.end(),
                                          [&](const FlatRange& owned) { return owned.end() < range.end(); });
  internal_check(owner != owned_.end() && owner->first <= range.first, "state of a range that is not this rank's");
  const std::int64_t position = positions_[static_cast<std::size_t>(owner - owned_.begin())];
  const FlatRange here{position + range.first - owner->first, range.count};
  const auto moment = [&](Tensor tensor) { return tensor ? in(tensor, here) : tensor; };
  return {has_master_copy() ? in(master_copy_, here) : in(store_.values(), range), moment(m_), moment(v_)};
}

void Optimizer::initialize(std::uint64_t seed) {
  if (has_master_copy()) {
    const Tensor numbers = store_.gradients();  // f32, of the store's size, and of no other use yet
    store_.draw_initial(ops_, seed, numbers);
    for (const FlatRange& range : owned_) ops_.copy(in(numbers, range), state(range).master);
    ops_.copy(numbers, store_.values());
  } else {
    store_.draw_initial(ops_, seed, store_.values());
  }
  ops_.fill(store_.gradients(), 0);
}

// The owned range's values are the rounded master's, here and soon on all copies.
void Optimizer::publish(std::size_t index) {
  const FlatRange& range = owned_[index];
  if (has_master_copy()) ops_.copy(state(range).master, in(store_.values(), range));
  if (store_.shards() > 1) gathers_->start(index);
}

void Optimizer::set_values_from_master() {
  for (std::size_t i = 0; i < owned_.size(); ++i) publish(i);
  if (gathers_ != nullptr) gathers_->finish();
}

void Optimizer::add_square_sum(const std::vector<FlatRange>& ranges, Tensor total) {
  for (const FlatRange& range : ranges) ops_.square_sum({.x = in(store_.gradients(), range), .total = total});
}

// All that ranks must know of each other's step, in one vector: over the model, then over its copies.
void Optimizer::sum_up(const ProcessGrid& grid, ConstTensor loss) {
  ops_.fill(sums_, 0);
  add_square_sum(in_norm_, sums_.slice(0, 0, 1));
  add_square_sum(copies_, sums_.slice(0, 1, 1));
  if (loss) {
    if (grid.tensor().rank() == 0) ops_.copy(loss, sums_.slice(0, 2, 1));
    ops_.copy(loss, sums_.slice(0, 3, 1));
  }
  grid.model().all_reduce(sums_);
  ops_.copy(sums_.slice(0, 0, 1), model_square_sum_);
  grid.copies().all_reduce(sums_);
}

// Norm, factor and whether to skip, on the device. Without shards copies have the same gradient, whose norm is in
// their replica's sum; where memory or a network fails they may not, so that skipping follows from all ranks' sums.
void Optimizer::decide(const UpdateSettings& settings) {
  ops_.clip_factor({.square_sum = store_.shards() > 1 ? sums_.slice(0, 0, 1) : model_square_sum_,
                    .maximum = static_cast<float>(settings_.clip_norm),
                    .loss_scale = settings.loss_scale,
                    .norm = norm_,
                    .factor = factor_,
                    .skip = unused_.slice(0, 0, 1)});
  const auto check = [&](ConstTensor square_sum, ConstTensor finite, Tensor skip) {
    ops_.clip_factor({.square_sum = square_sum,
                      .copies_square_sum = finite,
                      .loss_scale = settings.loss_scale,
                      .norm = unused_.slice(0, 0, 1),
                      .factor = unused_.slice(0, 1, 1),
                      .skip = skip});
  };
  check(sums_.slice(0, 0, 1), sums_.slice(0, 1, 1), skip_);
  check(zero_, sums_.slice(0, 3, 1), bad_loss_);
  ops_.scale(bad_loss_, kSkipForLoss);
  ops_.add(bad_loss_, skip_);
}

Optimizer::Update Optimizer::update(const ProcessGrid& grid, const UpdateSettings& settings) {
  if (gathers_ != nullptr) gathers_->finish();
  sum_up(grid, settings.loss);
  decide(settings);
  const Ticket read =
      device_.start_copy_to_host(numbers_here_.data(), scalars_.data(), sizeof(Numbers), device_.mark());
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    update_range(i, settings);
    publish(i);
  }
  // The step's one wait for the device, which has the whole update to do meanwhile. Communication is moved along, and
  // throws what its network has found wrong.
  for (PollBackoff backoff; !device_.complete(read); backoff.rest()) grid.copies().progress();
  Numbers numbers{};
  std::memcpy(&numbers, numbers_here_.data(), sizeof numbers);
  if (numbers.skip == 0) ++updates_;
  return {numbers.sums.loss, numbers.norm, numbers.skip != 0, numbers.skip >= kSkipForLoss};
}

void Optimizer::update_range(std::size_t index, const UpdateSettings& settings) {
  for (const Part& part : parts_[index]) {
    update_part(part, settings);
    if (gathers_ != nullptr) gathers_->progress();
  }
}

void Optimizer::update_part(const Part& part, const UpdateSettings& settings) {
  const State state = this->state(part.range);
  const Tensor gradient = in(store_.gradients(), part.range);
  const auto rate = static_cast<float>(settings.learning_rate);
  const float decay = part.decay ? static_cast<float>(settings.weight_decay) : 0.0f;
  if (settings_.rule == UpdateRule::sgd) {
    return ops_.sgd({.value = state.master,
                     .gradient = gradient,
                     .m = state.m,
                     .clip_factor = factor_,
                     .skip = skip_,
                     .learning_rate = rate,
                     .momentum = static_cast<float>(settings_.momentum),
                     .weight_decay = decay});
  }
  ops_.adamw({.value = state.master,
              .gradient = gradient,
              .m = state.m,
              .v = state.v,
              .clip_factor = factor_,
              .skip = skip_,
              .learning_rate = rate,
              .beta1 = static_cast<float>(settings_.beta1),
              .beta2 = static_cast<float>(settings_.beta2),
              .epsilon = static_cast<float>(settings_.epsilon),
              .weight_decay = decay,
              .step = updates_ + 1});
}

}  // namespace megatron
