#include "nn/declare.h"

namespace megatron {

Parameter Declare::split(const std::string& name, Shape shape, int dimension, std::int64_t groups) const {
  Parameter parameter;
  parameter.name = name;
  parameter.global_shape = shape;
  parameter.box.extent = shape;
  parameter.box.offset = shape;
  for (int i = 0; i < shape.rank(); ++i) parameter.box.offset[i] = 0;
  const bool shared = groups > 0 && groups < region_.size();
  const std::int64_t parts = shared ? groups : region_.size();
  const std::int64_t ranks_each = exact_division(region_.size(), parts, name.c_str());
  internal_check(!shared || ranks_each == region_.sharing(), "groups fewer than ranks on a grid that does not share");
  const std::int64_t part = exact_division(shape[dimension], parts, name.c_str());
  parameter.box.extent[dimension] = part;
  parameter.box.offset[dimension] = part * (region_.rank() / ranks_each);
  parameter.tensor = shared ? Placement::shared : Placement::split;
  parameter.counted = region_.rank() % ranks_each == 0;
  return parameter;
}

Parameter Declare::whole(const std::string& name, Shape shape) const {
  Parameter parameter;
  parameter.name = name;
  parameter.global_shape = shape;
  parameter.box = {shape, shape};
  for (int i = 0; i < shape.rank(); ++i) parameter.box.offset[i] = 0;
  parameter.tensor = region_.sequence_parallel() ? Placement::partial : Placement::replica;
  parameter.counted = region_.rank() == 0;
  return parameter;
}

int Declare::split_rows(const std::string& name, std::int64_t rows, std::int64_t columns, double deviation,
                        bool adjacent, std::int64_t groups) {
  Parameter parameter = split(name, {rows, columns}, 0, groups);
  parameter.initialization.deviation = deviation;
  return store_.declare(std::move(parameter), adjacent);
}

int Declare::split_columns(const std::string& name, std::int64_t rows, std::int64_t columns, double deviation) {
  Parameter parameter = split(name, {rows, columns}, 1);
  parameter.initialization.deviation = deviation;
  return store_.declare(std::move(parameter));
}

int Declare::split_bias(const std::string& name, std::int64_t size, bool adjacent, std::int64_t groups) {
  Parameter parameter = split(name, {size}, 0, groups);
  parameter.decay = false;
  return store_.declare(std::move(parameter), adjacent);
}

int Declare::whole_vector(const std::string& name, std::int64_t size, double constant) {
  Parameter parameter = whole(name, {size});
  parameter.decay = false;
  parameter.initialization.constant = constant;
  return store_.declare(std::move(parameter));
}

int Declare::whole_vector_inside(const std::string& name, std::int64_t size, double constant) {
  Parameter parameter = whole(name, {size});
  parameter.tensor = Placement::partial;
  parameter.decay = false;
  parameter.initialization.constant = constant;
  return store_.declare(std::move(parameter));
}

int Declare::whole_table(const std::string& name, std::int64_t rows, std::int64_t columns, double deviation) {
  Parameter parameter = whole(name, {rows, columns});
  parameter.initialization.deviation = deviation;
  return store_.declare(std::move(parameter));
}

}  // namespace megatron
