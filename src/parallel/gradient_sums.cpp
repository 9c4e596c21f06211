#include "parallel/gradient_sums.h"

namespace megatron {

namespace {

// Norms and biases are many and small: one message for all of them.
void sum_over_tensor_ranks(Communicator& tensor, const ParameterStore& store, Ops& ops, Arena& scratch) {
  std::int64_t elements = 0;
  for (const Parameter& parameter : store.all()) {
    if (parameter.tensor == Placement::partial) elements += parameter.elements();
  }
  if (elements == 0 || tensor.size() == 1) return;
  const ArenaScope scope(scratch);
  const Tensor packed = scratch.allocate("packed partial gradients", {elements}, DType::f32);
  const auto for_each = [&](auto&& move) {
    std::int64_t first = 0;
    for (const Parameter& parameter : store.all()) {
      if (parameter.tensor != Placement::partial) continue;
      const std::int64_t count = parameter.elements();
      move(parameter.gradient.view({count}), packed.slice(0, first, count));
      first += count;
    }
  };
  for_each([&](Tensor gradient, Tensor part) { ops.copy(gradient, part); });
  tensor.all_reduce(packed);
  for_each([&](Tensor gradient, Tensor part) { ops.copy(part, gradient); });
}

}  // namespace

void sum_partial_gradients(const ProcessGrid& grid, const ParameterStore& store, Ops& ops, Arena& scratch) {
  sum_over_tensor_ranks(grid.tensor(), store, ops, scratch);
  for (const Tensor& bucket : store.gradient_buckets()) grid.data().all_reduce(bucket);
  if (grid.embedding().size() == 1) return;
  for (const Parameter& parameter : store.all()) {
    if (parameter.pipeline == Placement::partial) grid.embedding().all_reduce(parameter.gradient);
  }
}

}  // namespace megatron
