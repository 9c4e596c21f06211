// Sums of gradients over the axes on which a parameter is `partial`: after the backward of the last micro-batch, before
// the norm. Afterwards every copy of a parameter has the same gradient, bit for bit.
#pragma once

#include "comm/process_grid.h"
#include "parallel/parameter.h"

namespace megatron {

/// Tensor axis first (sequence-parallel norms and biases), then data (bucket by bucket of the flat buffer), then the
/// tied embedding over the first and last stage. In place in store.gradients(). `scratch` holds the small ones packed
/// together.
void sum_partial_gradients(const ProcessGrid& grid, const ParameterStore& store, Ops& ops, Arena& scratch);

}  // namespace megatron
