#include "models/layers/parameter_builder.h"

namespace megatron {

Parameter ParameterBuilder::declared(Role role, const std::string& name, Shape shape) const {
  Parameter parameter(role);
  parameter.name = name;
  parameter.layer = layer_;
  parameter.global_shape = shape;
  parameter.copies = copies_;
  parameter.fixed_size = fixed_size_;
  parameter.box = {shape, shape};
  for (int i = 0; i < shape.rank(); ++i) parameter.box.offset[i] = 0;
  return parameter;
}

Parameter ParameterBuilder::split(Role role, const std::string& name, Shape shape, int dimension,
                                  std::int64_t groups) const {
  Parameter parameter = declared(role, name, shape);
  const bool shared = groups > 0 && groups < region_.size();
  const std::int64_t parts = shared ? groups : region_.size();
  const std::int64_t ranks_each = exact_division(region_.size(), parts, name.c_str());
  internal_check(!shared || ranks_each == region_.kv_replicas(),
                 "groups fewer than ranks on a grid that does not share", ranks_each, region_.kv_replicas());
  const std::int64_t part = exact_division(shape[dimension], parts, name.c_str());
  parameter.box.extent[dimension] = part;
  parameter.box.offset[dimension] = part * (region_.rank() / ranks_each);
  parameter.tensor = shared ? Placement::kv_replicated : Placement::split;
  parameter.owner = region_.rank() % ranks_each == 0;
  return parameter;
}

Parameter ParameterBuilder::whole(Role role, const std::string& name, Shape shape) const {
  Parameter parameter = declared(role, name, shape);
  parameter.tensor = region_.sequence_parallel() ? Placement::partial : Placement::replica;
  parameter.owner = region_.rank() == 0;
  return parameter;
}

int ParameterBuilder::column_parallel_weight(Role role, const std::string& name, std::int64_t rows,
                                             std::int64_t columns, double deviation, bool adjacent,
                                             std::int64_t groups) {
  Parameter parameter = split(role, name, {rows, columns}, 0, groups);
  parameter.initialization.deviation = deviation;
  parameter.from_products = role == Role::matrix;
  return store_.declare(std::move(parameter), adjacent);
}

int ParameterBuilder::vocabulary_table(Role role, const std::string& name, std::int64_t rows, std::int64_t columns,
                                       double deviation) {
  Parameter parameter = split(role, name, {rows, columns}, 0);
  parameter.initialization.deviation = deviation;
  parameter.from_products = true;
  return store_.declare(std::move(parameter));
}

int ParameterBuilder::row_parallel_weight(const std::string& name, std::int64_t rows, std::int64_t columns,
                                          double deviation) {
  Parameter parameter = split(Role::matrix, name, {rows, columns}, 1);
  parameter.initialization.deviation = deviation;
  parameter.from_products = true;
  return store_.declare(std::move(parameter));
}

int ParameterBuilder::column_parallel_bias(const std::string& name, std::int64_t size, bool adjacent,
                                           std::int64_t groups) {
  Parameter parameter = split(Role::vector, name, {size}, 0, groups);
  return store_.declare(std::move(parameter), adjacent);
}

int ParameterBuilder::replicated_vector(Role role, const std::string& name, std::int64_t size, double constant) {
  Parameter parameter = whole(role, name, {size});
  parameter.initialization.constant = constant;
  return store_.declare(std::move(parameter));
}

int ParameterBuilder::replicated_vector_partial_gradient(Role role, const std::string& name, std::int64_t size,
                                                         double constant) {
  Parameter parameter = whole(role, name, {size});
  parameter.tensor = Placement::partial;
  parameter.initialization.constant = constant;
  return store_.declare(std::move(parameter));
}

int ParameterBuilder::replicated_matrix(Role role, const std::string& name, std::int64_t rows, std::int64_t columns,
                                        double deviation) {
  Parameter parameter = whole(role, name, {rows, columns});
  parameter.initialization.deviation = deviation;
  return store_.declare(std::move(parameter));
}

int ParameterBuilder::repeated_bias(Role role, const std::string& name, std::int64_t size) {
  Parameter parameter = whole(role, name, {size});
  parameter.tensor = Placement::replica;
  return store_.declare(std::move(parameter));
}

int ParameterBuilder::untrained_vector(Role role, const std::string& name, std::int64_t size, std::int64_t row) {
  Parameter parameter = whole(role, name, {size});
  parameter.tensor = Placement::replica;
  return store_.declare_state({std::move(parameter), row});
}

int ParameterBuilder::repeated_matrix(Role role, const std::string& name, std::int64_t rows, std::int64_t columns,
                                      double deviation) {
  Parameter parameter = whole(role, name, {rows, columns});
  parameter.tensor = Placement::replica;
  parameter.initialization.deviation = deviation;
  return store_.declare(std::move(parameter));
}

}  // namespace megatron
