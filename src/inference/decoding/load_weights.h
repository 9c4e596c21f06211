// The weights of a model that only runs forward, out of a checkpoint of any layout into this rank's part of the model.
#pragma once

#include <vector>

#include "backend/ops/device.h"
#include "checkpoint/store/checkpoint.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// All parameters and states of an f32 store, each of them whole, as what a checkpoint reads.
std::vector<TensorSlice> whole_values(const ParameterStore& store);

/// Reads the weights, f32 in every checkpoint, and rounds them to the store's type; a few parameters at a time are in
/// memory in both. Collective over the world. Errors as CheckpointReader::read().
void load_weights(Communicator& world, const CheckpointReader& checkpoint, const ParameterStore& store,
                  const Backend& backend);

}  // namespace megatron
