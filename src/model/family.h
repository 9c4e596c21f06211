// The families of models (model.family): how one's stages are made, and what a token of it costs. A new family is a row
// in the table of family.cpp and its stages; nobody above this folder names one.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "comm/process_grid.h"
#include "config/config.h"
#include "model/flops.h"
#include "model/stage.h"

namespace megatron {

/// The chunks of the model that one rank holds, in the order of parallel.virtual_stages.
using Stages = std::vector<std::unique_ptr<Stage>>;

struct ModelFamily {
  std::string_view name;  ///< model.family
  /// Declares the parameters of this rank's chunks in `store`, which the caller allocates afterwards. All arguments but
  /// the configuration must outlive the stages.
  Stages (*make_stages)(const Config& config, const ProcessGrid& grid, const TensorRegion& region,
                        ParameterStore& store);
  /// As flops_per_token() says.
  FlopsPerToken (*flops)(const ModelConfig& model, std::int64_t recomputed_layers, std::int64_t sequence);
};

/// Error(internal) for a family that is not in the table: the configuration refuses those.
const ModelFamily& family_of(const ModelConfig& model);

inline Stages make_stages(const Config& config, const ProcessGrid& grid, const TensorRegion& region,
                          ParameterStore& store) {
  return family_of(config.model).make_stages(config, grid, region, store);
}

}  // namespace megatron
