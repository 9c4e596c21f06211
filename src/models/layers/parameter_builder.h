// Declarations of parameters as layers need them: the tensor-parallel cut, the copies and the initialisation of each
// kind in one place. The layer says the role, the model where in the forward pass it is. Knows the tensor axis alone;
// the model adds what it knows of stages.
#pragma once

#include <string>

#include "distributed/parallel/parameter.h"
#include "distributed/parallel/tensor_region.h"

namespace megatron {

class ParameterBuilder {
 public:
  ParameterBuilder(ParameterStore& store, const TensorRegion& region) : store_(store), region_(region) {}
  /// The same for parameters of experts, of which only some data ranks hold copies.
  ParameterBuilder of_experts() const {
    ParameterBuilder builder = *this;
    builder.copies_ = CopyGroup::experts;
    return builder;
  }
  /// The same for parameters of a layer, by its number in the whole model (Parameter::layer), or of what comes after
  /// all layers. A builder as it is made declares what comes before them.
  ParameterBuilder in_layer(std::int64_t layer) const {
    ParameterBuilder builder = *this;
    builder.layer_ = layer;
    return builder;
  }
  ParameterBuilder after_layers() const { return in_layer(kAfterLayers); }
  /// The same for parameters of which no dimension grows with the model's width.
  ParameterBuilder of_fixed_size() const {
    ParameterBuilder builder = *this;
    builder.fixed_size_ = true;
    return builder;
  }

  ParameterStore& store() const { return store_; }
  const TensorRegion& region() const { return region_; }

  /// A matrix [rows, columns] of which this rank holds 1/t of the rows (column-parallel in Megatron's words: the
  /// output is cut). Given `groups`, the rows are this number of groups, which are never split:
  /// where they are fewer than the ranks, neighbours share one, and what each computes is a part of its gradient.
  int column_parallel_weight(Role role, const std::string& name, std::int64_t rows, std::int64_t columns,
                             double deviation, bool adjacent = false, std::int64_t groups = 0);
  /// A table [rows, columns] whose rows are looked up, multiplied with, or both: the same cut.
  int vocabulary_table(Role role, const std::string& name, std::int64_t rows, std::int64_t columns, double deviation);
  /// A hidden matrix [rows, columns] of which this rank holds 1/t of the columns (row-parallel: the input is cut).
  int row_parallel_weight(const std::string& name, std::int64_t rows, std::int64_t columns, double deviation);
  /// A zero bias [size] of which this rank holds 1/t, or its group's as above.
  int column_parallel_bias(const std::string& name, std::int64_t size, bool adjacent = false, std::int64_t groups = 0);
  /// A vector [size] that every tensor rank holds whole. Under sequence parallelism its gradient is partial.
  int replicated_vector(Role role, const std::string& name, std::int64_t size, double constant);
  /// The same inside a region, where every rank applies it to its own heads: its gradient is partial either way.
  int replicated_vector_partial_gradient(Role role, const std::string& name, std::int64_t size, double constant);
  /// A table [rows, columns] that every tensor rank holds whole, used on outside rows (position embedding).
  int replicated_matrix(Role role, const std::string& name, std::int64_t rows, std::int64_t columns, double deviation);
  /// A zero bias [size], or a matrix, that every tensor rank holds whole and applies to the same rows, under sequence
  /// parallelism too: each computes the whole gradient.
  int repeated_bias(Role role, const std::string& name, std::int64_t size);
  int repeated_matrix(Role role, const std::string& name, std::int64_t rows, std::int64_t columns, double deviation);
  /// Numbers [size] that every tensor rank holds whole and no gradient trains (ModelState).
  int untrained_vector(Role role, const std::string& name, std::int64_t size, std::int64_t row);

 private:
  Parameter declared(Role role, const std::string& name, Shape shape) const;
  Parameter whole(Role role, const std::string& name, Shape shape) const;
  Parameter split(Role role, const std::string& name, Shape shape, int dimension, std::int64_t groups = 0) const;

  ParameterStore& store_;
  const TensorRegion& region_;
  CopyGroup copies_ = CopyGroup::dense;
  std::int64_t layer_ = kBeforeLayers;
  bool fixed_size_ = false;
};

}  // namespace megatron
