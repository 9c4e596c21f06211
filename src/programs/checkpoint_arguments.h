// The command line of megatron_checkpoint: commands, which options belong to which, and what they may be.
#pragma once

#include <string>

#include "base/system/durable_file.h"
#include "checkpoint/hugging_face/hugging_face.h"

namespace megatron {

struct CheckpointArguments {
  std::string command, source, target;
  int tensor = 1, pipeline = 1, virtual_stages = 1, data = 1, expert = 1;
  double tolerance = 0;
  bool tensors = false, all = false, weights_only = false, no_comparison = false, version = false, help = false;
  std::string format, dtype = "fp32", max_shard_size = "5GB";
  OutputFile logits{"--logits", ""};
  ImportOptions import;
};

/// Error(configuration) naming what is wrong and what was probably meant.
CheckpointArguments parse_checkpoint_arguments(int argc, char** argv);

/// The text of --help: on this command alone, or on all if there is none of this name.
std::string usage(const std::string& command);

/// The options of export, checked.
ExportOptions export_options(const CheckpointArguments& arguments);

}  // namespace megatron
