// The tensors that a layout holds, compared with those of one rank: gradients, or parameters.
//
// Only rank 0 has the whole model's reference tensors; it sends them to all ranks in chunks, and every rank compares
// what it holds of them. So each copy is looked at where it lies, and no other rank needs memory for a whole model.
// Knows tensors and names; parity_report.h says how far they may differ.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "backend/ops/device.h"
#include "distributed/comm/communicator.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// One tensor for each parameter of a whole model, in host memory, in the order of the model's layers.
struct WholeTensors {
  struct Tensor {
    std::string name;
    Shape shape;
    std::vector<float> values;  ///< row-major
    double scale = 0;           ///< the size that differences are relative to
  };
  std::vector<Tensor> tensors;

  /// The values of `pieces`, which must be whole tensors (one rank has them all). Scales are the tensors' L2 norms.
  static WholeTensors of(const std::vector<TensorSlice>& slices, Device& device);
  /// Gradients of all parameters `records`: of(`slices`) times `unit`. In exact arithmetic the gradient of a key's bias
  /// is zero, so its scale is that of the query's bias (Parameter::measured_by).
  static WholeTensors of_gradients(const std::vector<TensorSlice>& slices, const std::vector<Parameter>& records,
                                   double unit, Device& device);
  /// Takes the new values of the same parameters. Scales become how far each tensor has moved, plus `floor` times its
  /// norm.
  void move_to(const std::vector<TensorSlice>& slices, double floor, Device& device);
};

/// The difference of what is not finite.
inline constexpr double kInfiniteDifference = std::numeric_limits<double>::infinity();

struct TensorDeviation {
  std::string name;
  double scale = 0;  ///< the reference tensor's
  /// ‖Δ‖ of the layout's tensor from the reference; of the worst rank's part alone if that is more.
  double distance = 0;
  int rank = 0;         ///< the rank that holds the part with the largest ‖Δ‖
  double relative = 0;  ///< distance / scale
};

/// Compares `held`, this rank's tensors multiplied by `unit`, with the reference, which rank 0 alone passes (the
/// others: nullptr). Collective; every rank gets the same list, in the order of the reference. A tensor that is not
/// finite has an infinite difference. Every element of every tensor must be held, by as many ranks as any other of its
/// tensor and by each of them once: else, and for a tensor that the reference lacks, Error(internal) on all ranks, with
/// the tensor's name.
std::vector<TensorDeviation> compare_tensors(Communicator& world, const WholeTensors* reference,
                                             const std::vector<TensorSlice>& held, double unit, Device& device);

/// Sets `held` to what the reference, which rank 0 alone passes, has there, multiplied by `unit`. Collective.
void set_tensors(Communicator& world, const WholeTensors* reference, const std::vector<TensorSlice>& held, double unit,
                 Device& device);

}  // namespace megatron
