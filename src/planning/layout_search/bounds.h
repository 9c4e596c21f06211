// Lower bounds of a layout's time and memory without playing it, so that a search plays few layouts. If the layers of a
// model repeat, all alike or with experts in every n-th one, they are played once for each way to cut them; otherwise
// only the model's matrices are counted.
#pragma once

#include <map>
#include <optional>
#include <tuple>

#include "planning/layout_search/step_time.h"

namespace megatron {

class LayoutBounds {
 public:
  explicit LayoutBounds(const Hardware& hardware) : hardware_(hardware) {}

  /// Least time of a step. `config` must be resolved.
  double seconds(const Config& config);
  /// Least memory of the fullest rank.
  double bytes(const Config& config);

 private:
  /// One layer of one rank, forward and backward of a micro-batch: the average of those that repeat.
  struct Layer {
    double seconds = 0, activations = 0, weights = 0;
    double gradients = 0, optimizer = 0;  ///< undivided
  };
  /// Tensor, context and expert ranks, sequence parallelism, micro-batch size, recomputation.
  using Cut =
      std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, std::int64_t, bool, decltype(RecomputeParts::given)>;

  const Layer* layer_of(const Config& config);

  const Hardware& hardware_;
  std::map<Cut, Layer> layers_;
};

}  // namespace megatron
