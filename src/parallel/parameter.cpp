#include "parallel/parameter.h"

#include <algorithm>

#include "base/philox.h"

namespace megatron {

namespace {
constexpr std::int64_t kAlignment = 16;  // elements: 64 bytes of f32
}

int ParameterStore::declare(Parameter parameter, bool adjacent) {
  internal_check(values_.empty(), "parameter declared after the store was allocated");
  for (const Parameter& other : parameters_) {
    internal_check(other.name != parameter.name, "two parameters of one name on one rank");
  }
  if (!adjacent) flat_elements_ = (flat_elements_ + kAlignment - 1) / kAlignment * kAlignment;
  parameter.first = flat_elements_;
  flat_elements_ += parameter.elements();
  parameters_.push_back(std::move(parameter));
  return static_cast<int>(parameters_.size()) - 1;
}

void ParameterStore::mark_tied(int index, bool counted) {
  Parameter& parameter = parameters_[static_cast<std::size_t>(index)];
  parameter.pipeline = Placement::partial;
  parameter.counted = parameter.counted && counted;
}

void ParameterStore::set_views(Tensor values, Tensor gradients) {
  values_ = values;
  gradients_ = gradients;
  for (Parameter& parameter : parameters_) {
    const std::int64_t count = parameter.elements();
    parameter.value = values.slice(0, parameter.first, count).view(parameter.box.extent);
    parameter.gradient = gradients.slice(0, parameter.first, count).view(parameter.box.extent);
  }
  cut_buckets();
}

void ParameterStore::cut_buckets() {
  const std::int64_t enough = std::max(kBucketElements, flat_elements_ / kMostBuckets);
  std::int64_t first = 0, end = 0;  // of the bucket that is open
  const auto close = [&] {
    if (end > first) buckets_.push_back(gradients_.slice(0, first, end - first));
  };
  bool passed_over = true;  // a parameter that is not summed lies before the next one
  for (const Parameter& parameter : parameters_) {
    if (parameter.data != Placement::partial) {
      passed_over = true;
      continue;
    }
    if (passed_over || end - first >= enough) {
      close();
      first = parameter.first;
    }
    passed_over = false;
    end = parameter.first + parameter.elements();
  }
  close();
}

void ParameterStore::allocate(Allocator& allocator, DType value_type) {
  const auto elements = static_cast<std::size_t>(flat_elements_);
  value_buffer_ = Buffer(allocator, elements * size_of(value_type));
  gradient_buffer_ = Buffer(allocator, elements * size_of(DType::f32));
  set_views(value_buffer_.tensor({flat_elements_}, value_type), gradient_buffer_.tensor({flat_elements_}, DType::f32));
}

void ParameterStore::allocate_sizing(DType value_type) {
  Arena values("values"), gradients("gradients");
  set_views(values.allocate("values", {flat_elements_}, value_type),
            gradients.allocate("gradients", {flat_elements_}, DType::f32));
}

void ParameterStore::initialize(Ops& ops, std::uint64_t seed) {
  draw_initial(ops, seed, values_);
  ops.fill(gradients_, 0);
}

void ParameterStore::draw_initial(Ops& ops, std::uint64_t seed, Tensor numbers) const {
  internal_check(numbers.dtype() == DType::f32 && numbers.elements() == flat_elements_,
                 "initial numbers need a flat f32 tensor of the store's size");
  ops.fill(numbers, 0);
  for (const Parameter& parameter : parameters_) {
    const Tensor value = numbers.slice(0, parameter.first, parameter.elements()).view(parameter.box.extent);
    if (parameter.initialization.deviation <= 0) {
      ops.fill(value, parameter.initialization.constant);
      continue;
    }
    const bool matrix = parameter.global_shape.rank() == 2;
    internal_check(matrix, "only matrices are initialised from a normal distribution");
    ops.normal({.y = value,
                .key = random_key(seed, 0, hash_name(parameter.name)),
                .deviation = static_cast<float>(parameter.initialization.deviation),
                .first_row = parameter.box.offset[0],
                .first_column = parameter.box.offset[1],
                .global_columns = parameter.global_shape[1]});
  }
}

Tensor ParameterStore::joint(Tensor flat, int index, int count, std::int64_t columns) const {
  std::int64_t elements = 0;
  for (int i = index; i < index + count; ++i) {
    internal_check(at(i).first == at(index).first + elements, "joint view of parameters that are not adjacent");
    elements += at(i).elements();
  }
  const Tensor view = flat.slice(0, at(index).first, elements);
  return columns == 0 ? view : view.view({elements / columns, columns});
}

Tensor ParameterStore::joint_value(int index, int count, std::int64_t columns) const {
  return joint(values_, index, count, columns);
}

Tensor ParameterStore::joint_gradient(int index, int count, std::int64_t columns) const {
  return joint(gradients_, index, count, columns);
}

std::int64_t ParameterStore::parameter_elements() const {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters_) sum += parameter.elements();
  return sum;
}

}  // namespace megatron
