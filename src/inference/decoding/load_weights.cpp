#include "inference/decoding/load_weights.h"

namespace megatron {

namespace {

constexpr std::int64_t kNumbersTogether = std::int64_t{16} << 20;  // 64 MiB, or one larger parameter

// The whole of a parameter, to be filled with f32 numbers.
TensorSlice whole(const Parameter& parameter, Tensor value) {
  const std::int64_t count = parameter.elements();
  return {.name = parameter.name,
          .global_shape = parameter.global_shape,
          .box = parameter.box,
          .first = 0,
          .count = count,
          .value = value.view({count})};
}

std::vector<TensorSlice> states_of(const ParameterStore& store) {
  std::vector<TensorSlice> pieces;
  for (const ModelState& state : store.states()) pieces.push_back(whole(state, state.value));
  return pieces;
}

// [begin, end) of the parameters that are read together, by their last ones.
std::vector<std::size_t> rounds_of(const std::vector<Parameter>& all) {
  std::vector<std::size_t> ends;
  for (std::size_t end = 0; end < all.size(); ends.push_back(end)) {
    std::int64_t numbers = all[end++].elements();
    while (end < all.size() && numbers + all[end].elements() <= kNumbersTogether) numbers += all[end++].elements();
  }
  return ends;
}

}  // namespace

std::vector<TensorSlice> whole_values(const ParameterStore& store) {
  std::vector<TensorSlice> pieces;
  for (const Parameter& parameter : store.all()) pieces.push_back(whole(parameter, parameter.value));
  for (const TensorSlice& state : states_of(store)) pieces.push_back(state);
  return pieces;
}

void load_weights(Communicator& world, const CheckpointReader& checkpoint, const ParameterStore& store,
                  const Backend& backend) {
  Device& device = *backend.device;
  if (store.values().dtype() == DType::f32) return checkpoint.read(world, whole_values(store), device);
  const std::vector<Parameter>& all = store.all();
  const std::vector<std::size_t> ends = rounds_of(all);
  // Reading is collective, and stages differ in what they hold.
  const auto rounds = static_cast<std::size_t>(world.all_reduce_value(static_cast<double>(ends.size()), kDecision));
  Buffer memory;
  std::size_t begin = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::size_t end = round < ends.size() ? ends[round] : all.size();
    std::size_t bytes = 0;
    for (std::size_t i = begin; i < end; ++i) bytes += static_cast<std::size_t>(all[i].elements()) * sizeof(float);
    if (memory.bytes() < bytes) memory = Buffer();  // the old one is not needed while the new one is allocated
    if (memory.bytes() < bytes) memory = Buffer(device, bytes);
    std::vector<TensorSlice> pieces;
    std::size_t used = 0;
    for (std::size_t i = begin; i < end; ++i) {
      pieces.push_back(whole(all[i], memory.tensor({all[i].elements()}, DType::f32, used)));
      used += pieces.back().value.bytes();
    }
    checkpoint.read(world, pieces, device);
    for (std::size_t i = begin; i < end; ++i) {
      backend.ops->copy(pieces[i - begin].value, all[i].value.view({all[i].elements()}));
    }
    begin = end;
  }
  checkpoint.read(world, states_of(store), device);  // f32 in every model
}

}  // namespace megatron
