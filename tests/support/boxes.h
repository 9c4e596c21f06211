// Boxes of parameters in whole tensors: tests set the parameters of every layout from one set of whole values, and put
// what the ranks hold back together.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "distributed/parallel/parameter.h"

namespace megatron::test {

/// Whole (global) tensors by parameter name, row-major.
using NamedValues = std::map<std::string, std::vector<float>>;

/// visit(first element in the whole tensor, first element in the box, count) for each contiguous run of the box.
template <class Boxed, class Visit>  // a Parameter, or a Slice of one
void for_each_run(const Boxed& boxed, const Visit& visit) {
  const bool matrix = boxed.global_shape.rank() == 2;
  const std::int64_t rows = matrix ? boxed.box.extent[0] : 1;
  const std::int64_t columns = boxed.box.extent[matrix ? 1 : 0];
  const std::int64_t first_row = matrix ? boxed.box.offset[0] : 0;
  const std::int64_t first_column = boxed.box.offset[matrix ? 1 : 0];
  const std::int64_t stride = matrix ? boxed.global_shape[1] : 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    visit((first_row + row) * stride + first_column, row * columns, columns);
  }
}

/// Writes `part`, f32 and of the parameter's box, into the whole tensor of its name.
inline void assemble(const Parameter& parameter, ConstTensor part, NamedValues& whole) {
  std::vector<float>& target = whole[parameter.name];
  target.resize(static_cast<std::size_t>(parameter.global_shape.elements()));
  const float* source = part.as<float>();
  for_each_run(parameter, [&](std::int64_t in_whole, std::int64_t in_box, std::int64_t count) {
    std::copy_n(source + in_box, count, target.data() + in_whole);
  });
}

/// Writes a slice's values into the whole tensor of its name.
inline void assemble(const TensorSlice& slice, NamedValues& whole) {
  std::vector<float>& target = whole[slice.name];
  target.resize(static_cast<std::size_t>(slice.global_shape.elements()));
  const float* source = slice.value.as<float>();
  for_each_run(slice, [&](std::int64_t in_whole, std::int64_t in_box, std::int64_t count) {
    const std::int64_t begin = std::max(in_box, slice.first), end = std::min(in_box + count, slice.first + slice.count);
    if (begin < end)
      std::copy(source + begin - slice.first, source + end - slice.first, &target[0] + in_whole + begin - in_box);
  });
}

/// The parameter's box of a whole tensor.
inline std::vector<float> box_of(const Parameter& parameter, const std::vector<float>& whole) {
  internal_check(static_cast<std::int64_t>(whole.size()) == parameter.global_shape.elements(),
                 "whole values have another size than the parameter");
  std::vector<float> part(static_cast<std::size_t>(parameter.elements()));
  for_each_run(parameter, [&](std::int64_t in_whole, std::int64_t in_box, std::int64_t count) {
    std::copy_n(whole.data() + in_whole, count, part.data() + in_box);
  });
  return part;
}

/// Sets the values of all parameters of a store in host memory.
inline void set_values(const ParameterStore& store, const NamedValues& whole) {
  for (const Parameter& parameter : store.all()) {
    const std::vector<float> part = box_of(parameter, whole.at(parameter.name));
    std::copy(part.begin(), part.end(), parameter.value.as<float>());
  }
}

}  // namespace megatron::test
