// A golden file: what scripts/make_golden.py wrote about a tiny model (its opening comment lists the contents).
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "hdf5/hdf5_file.h"
#include "support/boxes.h"

namespace megatron::test {

struct GoldenBatch {
  std::vector<int> tokens, targets;  // [s, b]
};

struct Golden {
  Config config;  ///< the model without dropout, the optimizer, one batch a step; one rank
  double learning_rate = 0;
  NamedValues parameters, gradients;
  double loss = 0, gradient_norm = 0;  ///< of `batch` at the initial values
  GoldenBatch batch;
  std::vector<float> logits;          ///< [s, b, vocab_size], of `batch`
  std::vector<GoldenBatch> steps;     ///< of the training that starts from the initial values, too
  std::vector<double> losses, norms;  ///< of the steps, before each update
};

/// Errors: data, if the file is not as described.
Golden read_golden(const std::string& path);

}  // namespace megatron::test
