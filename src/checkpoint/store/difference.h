// How two checkpoints differ, whatever the layouts that saved them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/store/checkpoint.h"

namespace megatron {

/// How the values of a tensor differ, or one of its states.
struct NumberDifference {
  std::string dataset;         ///< kValues, or the state's name
  double largest = 0;          ///< absolute; infinite or not a number where the numbers are
  std::int64_t differing = 0;  ///< elements whose bits differ
};

/// How a tensor that both have in the same shape differs.
struct TensorDifference {
  std::string name;
  Shape shape;
  std::int64_t elements = 0;              ///< compared of the values, and of each state
  std::vector<NumberDifference> numbers;  ///< the values, then the states that both have, where they were compared
  std::int64_t differing() const {
    std::int64_t sum = 0;
    for (const NumberDifference& each : numbers) sum += each.differing;
    return sum;
  }
  bool equal() const { return differing() == 0; }
};

/// Everything else that differs, one line each: tensors that one side lacks or that have other shapes, optimizer state,
/// step, samples, tokens, facts, and of the state's `extra` these keys. Without `state` only what concerns tensors'
/// values.
std::vector<std::string> other_differences(const CheckpointReader& a, const CheckpointReader& b, bool state,
                                           const std::vector<std::string>& extra = {});

/// Differences of all numbers (without `states`: of the values alone) of the tensors that both have in the same shape,
/// in the order of their names. Of the tensors in `rows` only the first rows, as many as it says, are compared. Streams
/// both.
std::vector<TensorDifference> compare_tensors(const CheckpointReader& a, const CheckpointReader& b, bool states,
                                              const std::map<std::string, std::int64_t>& rows = {});

}  // namespace megatron
