// The families of models (model.family): how the stages of one are made, what its batches hold, what a token of it
// costs, and what a checkpoint says of it. A new family is a row in the table of family.cpp and its stages; what
// a run does with it follows from these. Hugging Face's forms are rows of another table
// (checkpoint/hugging_face/hugging_face_families.h), each for one family.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "config/schema/config.h"
#include "distributed/comm/process_grid.h"
#include "models/families/flops.h"
#include "models/families/loss_terms.h"
#include "models/families/stage.h"

namespace megatron {

/// The chunks of the model that one rank holds, in the order of parallel.virtual_stages.
using Stages = std::vector<std::unique_ptr<Stage>>;

struct ModelFamily {
  std::string_view name;  ///< model.family
  bool decodes = false;   ///< it writes text, token by token: its stages can make a cache
  /// Declares the parameters of this rank's chunks in `store`, which the caller allocates afterwards. All arguments but
  /// the configuration must outlive the stages.
  Stages (*make_stages)(const Config& config, const ProcessGrid& grid, const TensorRegion& region,
                        ParameterStore& store);
  /// Sets of stages that hold copies of the same parameters, for GridShape::ties; parameters are marked by the index.
  std::vector<std::vector<int>> (*ties)(const Config& config);
  /// Layout of its micro-batches of whole sequences: all that they may consist of.
  BatchLayout (*batch_layout)(const Config& config);
  /// Terms of the loss that the model minimises in training.
  LossTerms (*loss_terms)(const Config& config);
  /// As flops_per_token() says.
  FlopsPerToken (*flops)(const ModelConfig& model, RecomputedLayers recomputed, std::int64_t sequence);
  /// The facts that checkpoints hold of a model, and of such facts what a run must share to resume, or to start with
  /// the weights alone (models/families/signature.h). Facts may be a stranger's: functions take any object.
  nlohmann::json (*signature)(const Config& config);
  nlohmann::json (*resume_signature)(nlohmann::json facts);
  nlohmann::json (*weights_signature)(nlohmann::json facts);
};

/// Error(internal) for a family that is not in the table: the configuration refuses those.
const ModelFamily& family_of(const ModelConfig& model);

inline Stages make_stages(const Config& config, const ProcessGrid& grid, const TensorRegion& region,
                          ParameterStore& store) {
  return family_of(config.model).make_stages(config, grid, region, store);
}

/// The layout for the configured micro-batch size and sequence lengths.
inline BatchLayout batch_layout(const Config& config) {
  return family_of(config.model).batch_layout(config);
}
/// The part of it that one of parallel.context ranks has. All have equally much.
BatchLayout batch_layout_of_rank(const ModelFamily& family, const Config& config, int context_rank = 0);

}  // namespace megatron
