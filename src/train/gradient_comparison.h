// GradientComparison: the gradients that a layout has made, held against those of one rank.
//
// Only rank 0 has the whole model's reference gradients; it sends them around in chunks, and every rank compares what
// it holds of them: each copy is looked at where it lies, and nobody else needs room for a whole model. Knows gradients
// and names; what is allowed, and what is said about it, is verify_layout's.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "ops/device.h"
#include "parallel/parameter.h"

namespace megatron {

/// A whole model's gradients in host memory, in the order of the model's layers.
struct ReferenceGradients {
  struct Tensor {
    std::string name;
    Shape shape;
    std::vector<float> values;  ///< row-major
  };
  std::vector<Tensor> tensors;

  /// From a replica that is one rank alone: `pieces` must be whole tensors.
  static ReferenceGradients of(const std::vector<Piece>& pieces, Device& device);
};

struct GradientDifference {
  std::string name;
  double norm = 0;  ///< ‖g‖ of the reference
  double distance =
      0;         ///< ‖Δ‖ of the layout's from it: of the whole tensor, or of the worst rank's part if that is more
  int rank = 0;  ///< who holds the part with the largest ‖Δ‖
  /// ‖Δ‖ / `norm`; of an attention key's bias, whose gradient is zero in exact arithmetic, by the query bias' norm.
  double relative = 0;
};

/// Compares `held`, this rank's gradients multiplied by `unit`, with the reference, which rank 0 alone passes (the
/// others: nullptr). Collective; every rank gets the same list, in the order of the reference. A gradient that is not
/// finite has an infinite difference. Every element of every tensor must be held, by as many ranks as any other of its
/// tensor and by each of them once: else, and for a tensor that the reference lacks, Error(internal) on all ranks, with
/// the tensor's name.
std::vector<GradientDifference> compare_gradients(Communicator& world, const ReferenceGradients* reference,
                                                  const std::vector<Piece>& held, double unit, Device& device);

}  // namespace megatron
