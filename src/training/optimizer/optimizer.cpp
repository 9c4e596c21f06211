#include "training/optimizer/optimizer.h"

#include <algorithm>

namespace megatron {

namespace {

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

std::size_t Optimizer::state_bytes(const ParameterStore& store, Shard shard, const OptimizerSettings& settings) {
  const int tensors = settings.moments() + (store.values().dtype() == DType::f32 ? 0 : 1);
  return static_cast<std::size_t>(tensors * elements_of(store.owned_by(shard))) * sizeof(float);
}

Optimizer::Optimizer(const ParameterStore& store, const OptimizerSettings& settings, Device& device, Ops& ops,
                     ParameterAllGather* gathers)
    : store_(store), settings_(settings), ops_(ops), gathers_(gathers) {
  internal_check(gathers != nullptr || !store.sharded(), "an optimizer of shards needs gathers");
  const Shard shard = gathers != nullptr ? gathers->shard() : Shard{};
  owned_ = store.owned_by(shard);
  std::int64_t elements = 0;
  for (const FlatRange& range : owned_) {
    positions_.push_back(elements);
    elements += range.count;
    std::vector<Part>& parts = parts_.emplace_back();
    const Parameter* counted = nullptr;  // the one before, if it counts
    for (const Parameter& parameter : store.all()) {
      for (const FlatRange& part : ParameterStore::parts_in(parameter, {range})) {
        // Gaps hold zeros: one range, and one launch, spans the neighbours that count.
        if (parameter.owner) {
          std::vector<FlatRange>& ranges = in_norm(parameter.copies);
          if (counted == nullptr || counted->copies != parameter.copies) ranges.push_back(part);
          ranges.back().count = part.end() - ranges.back().first;
        }
        counted = parameter.owner ? &parameter : nullptr;
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
  memory_ = Buffer(device, state_bytes(store, shard, settings));
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
}

Optimizer::State Optimizer::state(const FlatRange& range) const {
  const auto owner = std::partition_point(owned_.begin(), owned_.end(),
                                          [&](const FlatRange& owned) { return owned.end() < range.end(); });
  internal_check(owner != owned_.end() && owner->first <= range.first, "state of a range that is not this rank's",
                 range.first, range.count);
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
  if (store_.sharded()) gathers_->start(index);
}

void Optimizer::set_values_from_master() {
  for (std::size_t i = 0; i < owned_.size(); ++i) publish(i);
  wait_for_values();
}

void Optimizer::add_square_sum(const std::vector<FlatRange>& ranges, Tensor total) {
  for (const FlatRange& range : ranges) ops_.square_sum({.x = in(store_.gradients(), range), .total = total});
}

void Optimizer::add_counted_squares(CopyGroup group, Tensor total) {
  add_square_sum(in_norm(group), total);
}

void Optimizer::add_squares_of_copies(Tensor total) {
  add_square_sum(copies_, total);
}

void Optimizer::add_counted_squares_of_masters(CopyGroup group, Tensor total) {
  for (const FlatRange& range : in_norm(group)) ops_.square_sum({.x = state(range).master, .total = total});
}

void Optimizer::wait_for_values() {
  if (gathers_ != nullptr) gathers_->finish();
}

void Optimizer::start_update(const UpdateSettings& settings, ConstTensor factor, ConstTensor skip) {
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    for (const Part& part : parts_[i]) {
      update_part(part, settings, factor, skip);
      if (gathers_ != nullptr) gathers_->progress();
    }
    publish(i);
  }
}

void Optimizer::update_part(const Part& part, const UpdateSettings& settings, ConstTensor factor, ConstTensor skip) {
  const State state = this->state(part.range);
  const Tensor gradient = in(store_.gradients(), part.range);
  const auto rate = static_cast<float>(settings.learning_rate);
  const float decay = part.decay ? static_cast<float>(settings.weight_decay) : 0.0f;
  if (settings_.rule == UpdateRule::sgd) {
    return ops_.sgd({.value = state.master,
                     .gradient = gradient,
                     .m = state.m,
                     .clip_factor = factor,
                     .skip = skip,
                     .learning_rate = rate,
                     .momentum = static_cast<float>(settings_.momentum),
                     .weight_decay = decay});
  }
  ops_.adamw({.value = state.master,
              .gradient = gradient,
              .m = state.m,
              .v = state.v,
              .clip_factor = factor,
              .skip = skip,
              .learning_rate = rate,
              .beta1 = static_cast<float>(settings_.beta1),
              .beta2 = static_cast<float>(settings_.beta2),
              .epsilon = static_cast<float>(settings_.epsilon),
              .weight_decay = decay,
              .step = updates_ + 1});
}

}  // namespace megatron
