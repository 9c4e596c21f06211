// A golden file: what scripts/golden/make_golden.py, make_half_golden.py, make_bert_golden.py, make_t5_golden.py or
// make_task_golden.py wrote about a tiny model (their opening comments list the contents).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "data/hdf5/hdf5_file.h"
#include "support/boxes.h"

namespace megatron::test {

/// A tolerance of numbers in 32 bits, relative to their size.
inline constexpr double kGoldenTolerance = 1e-5;

struct GoldenBatch {
  std::vector<int> tokens, targets;  // [s, b]
  std::vector<int> types;            // [s, b]; of an encoder alone
  std::vector<float> weights;        // [s, b]; of any encoder
  std::vector<int> lengths, labels;  // [b]; of an encoder alone; labels of a task's samples, each of some columns
  std::vector<int> encoder_tokens;   // [s of the encoder, b]; of an encoder and decoder
  std::vector<int> encoder_lengths;  // [b]
};

struct Golden {
  Config config;  ///< the model without dropout, the optimizer, one batch a step; one rank
  double learning_rate = 0;
  NamedValues parameters, gradients;
  double loss = 0, gradient_norm = 0;  ///< for `batch` at the initial values
  GoldenBatch batch;
  std::vector<double> loss_terms;       ///< for an encoder alone; files of encoders have no logits and steps
  std::vector<double> scores;           ///< for a task's head alone: [samples, classes]
  std::vector<float> logits;            ///< [s, b, vocab_size], of `batch`
  std::vector<GoldenBatch> steps;       ///< batches of the training that starts from the initial values, too
  std::vector<double> losses, norms;    ///< the steps', before each update
  std::map<std::string, double> moved;  ///< by how much the steps change each parameter; in 16 bits alone
};

/// `type`, for files of make_half_golden.py: "bf16", "fp16" or "bf16_native"; config.precision then says so, with the
/// loss scale, run.native_16bit is "on" for the last and "off" for others, and there are no logits. Errors: data, if
/// the file is not as described.
Golden read_golden(const std::string& path, const std::string& type = "");

}  // namespace megatron::test
