#include "checkpoint/store/tensor_slices.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/core/half.h"

namespace megatron {

namespace {

bool sound(const Tensor& tensor, std::int64_t count) {
  return tensor && tensor.contiguous() && tensor.elements() == count;
}

bool sound(const TensorSlice& slice) {
  const int rank = slice.global_shape.rank();
  const Box& box = slice.box;
  if (slice.name.empty() || slice.name.size() > kLongestTensorName || rank == 0 || box.offset.rank() != rank ||
      box.extent.rank() != rank)
    return false;
  for (int i = 0; i < rank; ++i) {
    if (box.offset[i] < 0 || box.extent[i] < 0 || box.offset[i] + box.extent[i] > slice.global_shape[i]) return false;
  }
  if (slice.first < 0 || slice.count < 0 || slice.first + slice.count > box.extent.elements()) return false;
  if (slice.count == 0) return true;
  const std::vector<std::string> names = state_names(slice);
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) return false;
  if (!std::all_of(names.begin(), names.end(), is_state_name)) return false;
  return sound(slice.value, slice.count) && slice.value.dtype() == DType::f32 &&
         std::all_of(slice.states.begin(), slice.states.end(), [&](const NamedState& state) {
           const DType type = state.numbers.dtype();
           return sound(state.numbers, slice.count) && (type == DType::f32 || type == DType::bf16);
         });
}

}  // namespace

bool is_state_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && name.size() <= 64 && name != kValues && name != kSliceTable &&
         std::all_of(name.begin(), name.end(), letter);
}

std::vector<std::string> state_names(const TensorSlice& slice) {
  std::vector<std::string> names;
  for (const NamedState& state : slice.states) names.push_back(state.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> state_names(const std::vector<TensorSlice>& slices) {
  std::set<std::string> names;
  for (const TensorSlice& slice : slices) {
    for (const NamedState& state : slice.states) names.insert(state.name);
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> datasets_with(const std::vector<std::string>& states) {
  std::vector<std::string> datasets{kValues};
  datasets.insert(datasets.end(), states.begin(), states.end());
  return datasets;
}

std::vector<TensorSlice> slices_in(const std::string& dataset, const std::vector<TensorSlice>& slices) {
  std::vector<TensorSlice> result;
  const auto add = [&](const TensorSlice& slice, const Tensor& numbers) {
    result.push_back({slice.name, slice.global_shape, slice.box, slice.first, slice.count, numbers});
  };
  for (const TensorSlice& slice : slices) {
    if (dataset == kValues) add(slice, slice.value);
    for (const NamedState& state : slice.states) {
      if (state.name == dataset) add(slice, state.numbers);
    }
  }
  return result;
}

std::int64_t elements_of(const std::vector<TensorSlice>& slices) {
  std::int64_t elements = 0;
  for (const TensorSlice& slice : slices) elements += slice.count;
  return elements;
}

std::span<const float> as_floats(ConstTensor numbers, std::vector<float>& block) {
  const auto count = static_cast<std::size_t>(numbers.elements());
  if (numbers.dtype() == DType::f32) return {numbers.as<float>(), count};
  block.resize(std::max(block.size(), count));
  const auto* const from = numbers.as<BFloat16>();
  std::transform(from, from + count, block.begin(), [](BFloat16 number) { return to_float(number); });
  return std::span(block).first(count);
}

void set_numbers(Tensor numbers, const float* from) {
  if (numbers.dtype() == DType::f32) {
    std::memcpy(numbers.data(), from, numbers.bytes());
  } else {
    std::transform(from, from + numbers.elements(), numbers.as<BFloat16>(),
                   [](float number) { return to_bfloat16(number); });
  }
}

void check_slices(const std::vector<TensorSlice>& slices) {
  for (const TensorSlice& slice : slices) {
    if (!sound(slice)) fail(ErrorKind::internal, "the slice of tensor '{}' contradicts itself", slice.name);
  }
}

}  // namespace megatron
