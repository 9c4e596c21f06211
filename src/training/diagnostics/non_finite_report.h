// A step whose loss or gradient was not finite: where that began. Looked for only after such a step; a healthy one pays
// nothing. One bad number is everywhere after the sums over ranks, so that the step is played once more without the
// sums over copies: the ranks whose own gradients are bad then began it, or they hold experts that such ranks sent a
// bad token to. If it does not come again, it was no property of the model and its data, but of a machine. Knows what
// ranks report; Replica plays, the loop decides what follows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/ops/device.h"
#include "distributed/comm/process_grid.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// Numbers that belong to a parameter: some or all of its values, master values or gradients.
struct ParameterPart {
  const Parameter* parameter;
  ConstTensor values;  ///< floats of any type, contiguous
};

/// A parameter in the order of the model.
struct ModelPlace {
  std::string name;
  std::int64_t layer = 0;  ///< the parameter's
  std::int64_t index = 0;  ///< in the order of a rank's parameters
};

/// Parameters of this rank that have a number which is not finite in a flat buffer (values, masters or gradients).
struct BadTensors {
  std::int64_t count = 0;
  ModelPlace first, last;  ///< unless count is 0

  /// Counts one more.
  void add(const Parameter& parameter);
};

/// Reads all of it.
bool has_bad_number(const ParameterPart& part, Device& device);
BadTensors find_bad_tensors(const std::vector<ParameterPart>& parts, Device& device);

/// One rank's findings about a bad step.
struct NonFiniteReport {
  bool loss = false;              ///< the loss over this data rank's samples was not finite
  BadTensors masters;             ///< the f32 master of what this rank updates
  BadTensors values;              ///< rounded to the type that is computed in
  BadTensors gradients;           ///< summed, as the update found them
  bool replayed_loss = false;     ///< that of the replay was not finite
  BadTensors replayed_gradients;  ///< this rank's own, before the sums over copies
  double loss_scale = 1;          ///< the step's
  double replayed_loss_scale = 1;

  bool bad_in_replay() const { return replayed_loss || replayed_gradients.count > 0; }
};

/// In words what happened, where (the first bad tensor in the model's order and the last, each with the lowest rank
/// that has it of those that began it; a backward that went wrong did so after the last), and what to suspect.
/// Collective over the grid; the same text on every rank.
std::string describe_non_finite_step(const ProcessGrid& grid, const NonFiniteReport& mine);

}  // namespace megatron
