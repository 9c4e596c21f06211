#include "nn/declare.h"

namespace megatron {

Parameter Declare::split(const std::string& name, Shape shape, int dimension) const {
  Parameter parameter;
  parameter.name = name;
  parameter.global_shape = shape;
  parameter.box.extent = shape;
  parameter.box.offset = shape;
  for (int i = 0; i < shape.rank(); ++i) parameter.box.offset[i] = 0;
  const std::int64_t part = exact_division(shape[dimension], region_.size(), name.c_str());
  parameter.box.extent[dimension] = part;
  parameter.box.offset[dimension] = part * region_.rank();
  parameter.tensor = Placement::split;
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
                        bool adjacent) {
  Parameter parameter = split(name, {rows, columns}, 0);
  parameter.initialization.deviation = deviation;
  return store_.declare(std::move(parameter), adjacent);
}

int Declare::split_columns(const std::string& name, std::int64_t rows, std::int64_t columns, double deviation) {
  Parameter parameter = split(name, {rows, columns}, 1);
  parameter.initialization.deviation = deviation;
  return store_.declare(std::move(parameter));
}

int Declare::split_bias(const std::string& name, std::int64_t size, bool adjacent) {
  Parameter parameter = split(name, {size}, 0);
  parameter.decay = false;
  return store_.declare(std::move(parameter), adjacent);
}

int Declare::whole_vector(const std::string& name, std::int64_t size, double constant) {
  Parameter parameter = whole(name, {size});
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
