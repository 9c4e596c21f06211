#include "training/optimizer/optimizer.h"

#include <algorithm>
#include <utility>

namespace megatron {

namespace {

// Elements whose masters, in f32 next to two states and a gradient, stay in the second cache of the core that updates
// them.
constexpr std::int64_t kCachedElements = std::int64_t{64} << 10;

Tensor in(Tensor flat, const FlatRange& range) {
  return flat.slice(0, range.first, range.count);
}

// Parameters in the buffer's order, which where matrices are shared out is not that of their declaration.
std::vector<const Parameter*> in_order(const ParameterStore& store) {
  std::vector<const Parameter*> parameters;
  for (const Parameter& parameter : store.all()) parameters.push_back(&parameter);
  std::sort(parameters.begin(), parameters.end(),
            [](const Parameter* a, const Parameter* b) { return a->first < b->first; });
  return parameters;
}

}  // namespace

Optimizer::Division Optimizer::divide(const ParameterStore& store, const std::vector<FlatRange>& owned,
                                      const ParameterGroups& groups) {
  Division division;
  const std::vector<const Parameter*> parameters = in_order(store);
  division.offloaded_from = find_offloaded_from(parameters, owned, groups.optimizer());
  const auto add = [&](std::int64_t first, std::int64_t end, const ParameterUpdate& how) {
    if (first == end) return;
    const bool offloaded = first >= division.offloaded_from;
    auto& rules = division.rules;
    auto memory = std::find_if(rules.begin(), rules.end(), [&](const RuleMemory& one) {
      return one.rule == how.rule && one.names == how.states() && one.offloaded == offloaded;
    });
    if (memory == rules.end()) memory = rules.insert(memory, {how.rule, how.states(), offloaded});
    division.sections.push_back(
        {{first, end - first}, static_cast<std::size_t>(memory - rules.begin()), memory->elements});
    memory->elements += end - first;
  };
  if (store.all().empty()) return division;
  ParameterUpdate how = groups.of(store.all().front());
  // Planning does this for each of thousands of copies: ranges and parameters go together.
  auto next = parameters.begin();
  for (const FlatRange& range : owned) {
    std::int64_t first = range.first;
    while (next != parameters.end() && (*next)->first + (*next)->elements() <= range.first) ++next;
    for (auto parameter = next; parameter != parameters.end() && (*parameter)->first < range.end(); ++parameter) {
      const std::int64_t begin = std::max((*parameter)->first, range.first);
      const ParameterUpdate its = groups.of(**parameter);
      if (its.rule == how.rule && its.states() == how.states() && begin != division.offloaded_from) continue;
      add(first, begin, how);
      first = begin;
      how = its;
    }
    add(first, range.end(), how);
  }
  return division;
}

Optimizer::StateBytes Optimizer::bytes_of(const ParameterStore& store, const Division& division, DType states) {
  const std::size_t master = store.values().dtype() == DType::f32 ? 0 : sizeof(float);
  StateBytes bytes;
  for (const RuleMemory& memory : division.rules) {
    (memory.offloaded ? bytes.offloaded : bytes.kept) +=
        (memory.names.size() * size_of(states) + master) * static_cast<std::size_t>(memory.elements);
  }
  return bytes;
}

Optimizer::StateBytes Optimizer::state_bytes(const ParameterStore& store, Shard shard, const ParameterGroups& groups) {
  return bytes_of(store, divide(store, store.owned_by(shard), groups), groups.state_type());
}

Optimizer::Optimizer(const ParameterStore& store, ParameterGroups groups, Device& device, Ops& ops,
                     ParameterAllGather* gathers, Arena* scratch, std::unique_ptr<OffloadedMemory> offloaded,
                     int threads)
    : store_(store),
      groups_(std::move(groups)),
      ops_(ops),
      gathers_(gathers),
      scratch_(scratch),
      cached_elements_(device.is_host_memory() && has_master_copy() ? threads * kCachedElements : 0),
      offloaded_(std::move(offloaded)) {
  internal_check(gathers != nullptr || !store.sharded(), "an optimizer of shards needs gathers");
  owned_ = store.owned_by(gathers != nullptr ? gathers->shard() : Shard{});
  division_ = divide(store, owned_, groups_);
  list_parts();
  list_matrices();
  allocate(device);
}

void Optimizer::list_parts() {
  for (const FlatRange& range : owned_) {
    std::vector<Part>& parts = parts_.emplace_back();
    const Parameter* counted = nullptr;  // the one before, if it counts
    for (const Parameter& parameter : store_.all()) {
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
        const ParameterUpdate how = groups_.of(parameter);
        const MatrixUpdate* const rule = how.rule->update_matrix;
        const Parameter* const matrix = rule != nullptr ? &parameter : nullptr;
        if (parts.empty() || !(parts.back().how == how) || parts.back().matrix.parameter != matrix ||
            is_offloaded(part) != is_offloaded(parts.back().range)) {
          parts.push_back({part, how, {matrix, rule}});
        }
        parts.back().range.count = part.end() - parts.back().range.first;
        if (rounds_states()) parts.back().pieces.push_back(piece_of(parameter, part, how.states()));
      }
    }
  }
}

// The master comes first: after an odd number of bf16 states it would not be aligned.
void Optimizer::allocate(Device& device) {
  const DType type = groups_.state_type();
  const StateBytes bytes = bytes_of(store_, division_, type);
  memory_ = Buffer(device, bytes.kept);
  internal_check(offloaded_bytes() == bytes.offloaded, "memory of another size for what is offloaded",
                 offloaded_bytes());
  std::size_t taken = 0, taken_offloaded = 0;
  const auto take = [&](std::int64_t elements, DType of, bool offloaded) {
    if (offloaded) {
      const Tensor tensor(offloaded_->data() + taken_offloaded, {elements}, of);  // zeros
      taken_offloaded += tensor.bytes();
      return tensor;
    }
    const Tensor tensor = memory_.tensor({elements}, of, taken);
    if (elements > 0) ops_.fill(tensor, 0);
    taken += tensor.bytes();
    return tensor;
  };
  std::int64_t elements = 0, kept = 0;
  for (const FlatRange& range : owned_) {
    positions_.push_back(elements);
    elements += range.count;
    kept += std::clamp(division_.offloaded_from - range.first, std::int64_t{0}, range.count);
  }
  if (has_master_copy()) {
    kept_masters_ = take(kept, DType::f32, false);
    if (kept < elements) offloaded_masters_ = take(elements - kept, DType::f32, true);
  }
  for (RuleMemory& memory : division_.rules) {
    for (std::size_t i = 0; i < memory.names.size(); ++i) {
      memory.states[i] = take(memory.elements, type, memory.offloaded);
    }
  }
}

Tensor Optimizer::master(const FlatRange& range) const {
  const auto owner = std::partition_point(owned_.begin(), owned_.end(),
                                          [&](const FlatRange& owned) { return owned.end() < range.end(); });
  internal_check(owner != owned_.end() && owner->first <= range.first, "state of a range that is not this rank's",
                 range.first, range.count);
  if (!has_master_copy()) return store_.values_of(range);
  const std::int64_t position = positions_[static_cast<std::size_t>(owner - owned_.begin())];
  const FlatRange place{position + range.first - owner->first, range.count};
  if (!is_offloaded(range)) return in(kept_masters_, place);
  return in(offloaded_masters_, {place.first - kept_masters_.elements(), place.count});
}

const Optimizer::Section& Optimizer::section_of(const FlatRange& range) const {
  const auto section = std::partition_point(division_.sections.begin(), division_.sections.end(),
                                            [&](const Section& one) { return one.range.end() < range.end(); });
  internal_check(section != division_.sections.end() && section->range.first <= range.first,
                 "state of a range that is not this rank's, or of several rules", range.first, range.count);
  return *section;
}

StateTensors Optimizer::states_in(const Section& section, const FlatRange& range) const {
  StateTensors states = division_.rules[section.memory].states;
  for (Tensor& state : states) {
    if (state) state = in(state, {section.first + range.first - section.range.first, range.count});
  }
  return states;
}

Optimizer::State Optimizer::state(const FlatRange& range) const {
  const Section& section = section_of(range);
  const StateTensors tensors = states_in(section, range);
  State state{master(range), {}};
  for (const std::string_view name : division_.rules[section.memory].names) {
    state.states.push_back({std::string(name), tensors[state.states.size()]});
  }
  return state;
}

std::vector<NamedState> Optimizer::all_states() const {
  std::vector<NamedState> states;
  for (const RuleMemory& memory : division_.rules) {
    for (std::size_t i = 0; i < memory.names.size(); ++i) {
      states.push_back({std::string(memory.names.begin()[i]), memory.states[i]});
    }
  }
  return states;
}

void Optimizer::initialize(std::uint64_t seed) {
  seed_ = seed;
  if (has_master_copy() || store_.divides_weights()) {
    ops_.fill(store_.values(), 0);
    for (const Bucket& bucket : store_.buckets()) {
      const Tensor numbers = store_.made_gradients(bucket);  // f32, of the bucket's size, and of no other use yet
      store_.draw_initial(ops_, seed, bucket, numbers);
      for (const FlatRange& range : owned_) {
        const std::int64_t first = std::max(range.first, bucket.first), end = std::min(range.end(), bucket.end());
        if (first >= end) continue;
        const FlatRange own{first, end - first};
        const auto numbers_of = [&](const FlatRange& part) {
          return numbers.slice(0, part.first - bucket.first, part.count);
        };
        if (has_master_copy()) {
          by_masters(own, OffloadedMemory::Access::write,
                     [&](const FlatRange& part) { ops_.copy(numbers_of(part), master(part)); });
        }
        if (store_.divides_weights_of(bucket)) ops_.copy(numbers_of(own), store_.values_of(own));
      }
      if (!store_.divides_weights_of(bucket)) ops_.copy(numbers, store_.read_values(bucket));
    }
  } else {
    store_.draw_initial(ops_, seed, store_.values());
  }
  ops_.fill(store_.gradients(), 0);
  rest();
}

// The owned range's values, which are set here, are soon those of all copies.
void Optimizer::publish(std::size_t index) {
  if (store_.sharded()) gathers_->start(index);
}

void Optimizer::set_values_from_master() {
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    set_values(owned_[i]);
    publish(i);
  }
  rest();
  wait_for_values();
}

void Optimizer::add_square_sum(const std::vector<FlatRange>& ranges, Tensor total) {
  for (const FlatRange& range : ranges) ops_.square_sum({.x = gradients_of(range), .total = total});
}

void Optimizer::add_counted_squares(CopyGroup group, Tensor total) {
  add_square_sum(in_norm(group), total);
}

void Optimizer::add_squares_of_copies(Tensor total) {
  add_square_sum(copies_, total);
}

void Optimizer::add_counted_squares_of_masters(CopyGroup group, Tensor total) {
  for (const FlatRange& range : in_norm(group)) {
    by_masters(range, OffloadedMemory::Access::read,
               [&](const FlatRange& part) { ops_.square_sum({.x = master(part), .total = total}); });
  }
  rest();
}

void Optimizer::wait_for_values() {
  if (gathers_ != nullptr) gathers_->finish();
}

void Optimizer::start_update(const UpdateSettings& settings, ConstTensor factor, ConstTensor skip) {
  take_matrix_scratch();
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    for (const Part& part : parts_[i]) update_part(part, settings, factor, skip);
    for (const Matrices& matrices : matrices_[i]) update_matrices(matrices, settings, factor, skip);
    const FlatRange& range = owned_[i];
    if (!sets_values_at_once({range.first, 0})) {
      set_values({range.first, std::clamp(division_.offloaded_from - range.first, std::int64_t{0}, range.count)});
    }
    publish(i);
  }
  rest();
}

void Optimizer::update_part(const Part& part, const UpdateSettings& settings, ConstTensor factor, ConstTensor skip) {
  const std::int64_t most = cached(most_at_a_time(part.range));
  for (std::int64_t first = 0; first < part.range.count; first += most) {
    const FlatRange chunk{part.range.first + first, std::min(most, part.range.count - first)};
    use(chunk, master(chunk), states_in(section_of(chunk), chunk));
    by_pieces(part, chunk, [&](const FlatRange& range, const StateDraws& draws) {
      part.how.rule->update(ops_, part.how.settings->optimizer, update_of(part, range, draws, settings, factor, skip));
    });
    if (sets_values_at_once(chunk)) set_values(chunk);
    if (gathers_ != nullptr) gathers_->progress();
  }
}

UpdateArgs Optimizer::update_of(const Part& part, const FlatRange& range, const StateDraws& draws,
                                const UpdateSettings& settings, ConstTensor factor, ConstTensor skip) const {
  const ParameterUpdate& how = part.how;
  return {.value = master(range),
          .gradient = gradients_of(range),
          .states = states_in(section_of(range), range),
          .draws = draws,
          .clip_factor = factor,
          .skip = skip,
          .learning_rate = static_cast<float>(settings.learning_rate * how.learning_rate_factor()),
          .weight_decay = static_cast<float>(how.weight_decay(groups_.optimizer().weight_decay, settings.weight_decay)),
          .step = updates_ + 1};
}

}  // namespace megatron
