// The command line of megatron_eval: its options, and which task they belong to.
#pragma once

#include <cstdint>
#include <string>

#include "base/system/durable_file.h"
#include "inference/decoding/forward_passes.h"
#include "programs/model_options.h"

namespace megatron {

struct EvalArguments {
  ModelOptions model;
  std::string task, data, labels, format, begin_token;  ///< begin_token: "auto", "yes" or "no"
  OutputFile output{"--output", ""}, predictions{"--predictions", ""};
  std::int64_t micro_batch_size = 4, stride = 0;  ///< stride 0: the task's own
  bool strict = false, version = false, help = false;

  /// Whether the model's own head tells labels apart; else it predicts next tokens.
  bool of_labels() const { return task == "classification" || task == "multiple_choice"; }
  ScoringLayout layout(int ranks) const {
    return {.ranks = ranks,
            .tensor = model.tensor,
            .pipeline = model.pipeline,
            .micro_batch_size = micro_batch_size,
            .precision = model.precision};
  }
};

/// Error(configuration) naming what is wrong.
EvalArguments parse_eval_arguments(int argc, char** argv);

/// The text of --help.
std::string eval_usage();

}  // namespace megatron
