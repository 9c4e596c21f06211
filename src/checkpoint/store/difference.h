// How two checkpoints differ, whatever the layouts that saved them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "checkpoint/store/checkpoint.h"

namespace megatron {

/// How a tensor that both have in the same shape differs, by kind of number.
struct TensorDifference {
  std::string name;
  Shape shape;
  int moments = 0;                          ///< that were compared
  std::array<double, 3> largest{};          ///< absolute; infinite or not a number where the numbers are
  std::array<std::int64_t, 3> differing{};  ///< elements whose bits differ
  bool equal() const { return differing[0] + differing[1] + differing[2] == 0; }
};

/// Everything else that differs, one line each: tensors that one side lacks or that have other shapes, optimizer state,
/// step, samples, tokens, facts, and of the state's `extra` these keys. Without `state` only what concerns tensors'
/// values.
std::vector<std::string> other_differences(const CheckpointReader& a, const CheckpointReader& b, bool state,
                                           const std::vector<std::string>& extra = {});

/// Differences of all numbers (without `moments`: of the values alone) of the tensors that both have in the same shape,
/// in the order of their names. Streams both.
std::vector<TensorDifference> compare_tensors(const CheckpointReader& a, const CheckpointReader& b, bool moments);

}  // namespace megatron
