// Slices of tensors: checks of any that is saved or loaded, and their numbers by the names of the datasets that have
// them: "value", and for each of the optimizer's states its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/parallel/parameter.h"

namespace megatron {

inline constexpr std::size_t kLongestTensorName = 512;
/// Datasets of a rank file that are not those of states: the values, and the table of slices.
inline constexpr const char *kValues = "value", *kSliceTable = "pieces";

/// Whether a state may have this name: 1 to 64 of a-z, 0-9 and _, and no other meaning in a rank file.
bool is_state_name(std::string_view name);

/// Box inside the shape, range inside the box, tensors contiguous and of `count` elements, values f32, states f32 or
/// bf16, with names of their own. A violation is the program's own defect, found before a file is touched: internal
/// error.
void check_slices(const std::vector<TensorSlice>& slices);

/// The names of a slice's states, or of all slices' together, sorted.
std::vector<std::string> state_names(const TensorSlice& slice);
std::vector<std::string> state_names(const std::vector<TensorSlice>& slices);
/// The datasets of a rank file whose slices have these states, in its order.
std::vector<std::string> datasets_with(const std::vector<std::string>& states);

/// The slices that a dataset has, in their order, with its numbers as their values.
std::vector<TensorSlice> slices_in(const std::string& dataset, const std::vector<TensorSlice>& slices);

std::int64_t elements_of(const std::vector<TensorSlice>& slices);

/// Numbers in the host's memory as files have them: in their place if they are f32, else in `block`.
std::span<const float> as_floats(ConstTensor numbers, std::vector<float>& block);
/// Sets numbers in the host's memory, f32 or bf16, to as many of a file's, to nearest even.
void set_numbers(Tensor numbers, const float* from);

/// Calls `body` with the value and each state of a slice.
template <class Slice, class Body>
void for_each_tensor(Slice& slice, const Body& body) {
  body(slice.value);
  for (auto& state : slice.states) body(state.numbers);
}

}  // namespace megatron
