// Shared by the tests of the gradients' and the weights' ring: parameters of layers that ranks divide.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "distributed/parallel/parameter.h"

namespace megatron::test {

inline int declare_vector(ParameterStore& store, const std::string& name, std::int64_t elements, CopyGroup copies) {
  Parameter parameter(Role::vector);
  parameter.name = name;
  parameter.global_shape = {elements};
  parameter.box = {{0}, {elements}};
  parameter.copies = copies;
  return store.declare(std::move(parameter));
}

/// A table, layers of two parameters of different sizes, of which the second is an expert's, and an end.
inline void declare_ring(ParameterStore& store, int layers) {
  declare_vector(store, "table", 70, CopyGroup::dense);
  for (int layer = 0; layer < layers; ++layer) {
    const int first = declare_vector(store, fmt::format("{}.a", layer), 20 + 30 * layer, CopyGroup::dense);
    const int last = declare_vector(store, fmt::format("{}.b", layer), 50 - 7 * layer, CopyGroup::experts);
    store.mark_layer(first, last);
  }
  declare_vector(store, "end", 33, CopyGroup::dense);
}

}  // namespace megatron::test
