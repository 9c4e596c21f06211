// One layer on one rank or on several tensor ranks, fed with whole inputs and parameters: what the tests of layers have
// in common. A LayerCase says how to build a layer and how its input and output lie over the ranks; LayerOnRank is one
// rank's share of it with all the memory it needs; run_on_ranks() plays a forward and a backward on all ranks as
// threads and puts the whole results back together.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/ops/device.h"
#include "models/layers/context.h"
#include "models/layers/parameter_builder.h"
#include "support/boxes.h"
#include "support/tensors.h"

namespace megatron::test {

// Sizes of all cases. Four heads and eight rows: up to four ranks, also sequence parallel. Of four ranks' parts of the
// padded vocabulary the third is partly padding and the fourth wholly.
inline constexpr std::int64_t kSequence = 8, kSamples = 3, kHidden = 24, kHeads = 4, kFeedForward = 40;
inline constexpr std::int64_t kEncoderSequence = 2 * kSequence;  ///< length of the stream that cross-attention sees
inline constexpr std::int64_t kVocab = 40, kPaddedVocab = 64, kPositions = 12;
inline constexpr double kLossScale = 0.37;  ///< the only one of PassSettings::gradient_scales

/// How a [s, b, width] tensor lies over the tensor ranks.
enum class Cut {
  rows,     ///< outside a region: whole, or cut by sequence rows under sequence parallelism
  columns,  ///< inside: always cut by its last dimension
};

/// A layer behind a common interface; keeps what its backward needs.
class TestedLayer {
 public:
  virtual ~TestedLayer() = default;
  virtual void forward(Context& context, ConstTensor x, Tensor y) = 0;
  virtual void backward(Context& context, Tensor dy, Tensor dx) = 0;
};

struct LayerCase {
  std::string name;
  std::int64_t in = 0;   ///< width of x; 0: takes tokens instead
  std::int64_t out = 0;  ///< width of y; 0: y is a loss, f64 [1], and dy is kLossScale
  Cut in_cut = Cut::rows, out_cut = Cut::rows;
  std::function<std::unique_ptr<TestedLayer>(ParameterBuilder&)> make;
  std::int64_t groups = kHeads;  ///< groups of heads that share keys and values
  float step = 0.02f;            ///< step of finite differences
  bool encoder = false;          ///< samples have types, lengths and labels
  std::int64_t columns = 1;      ///< columns that make a sample with a label
};

/// Every layer of nn/; with `dropout` as the probability of all their masks.
std::vector<LayerCase> layer_cases(double dropout);
LayerCase layer_case(const std::string& name, double dropout);

/// Random values for all parameters: none is the 0 or 1 that it would start from.
NamedValues random_parameters(const LayerCase& layer);
std::vector<float> random_input(const LayerCase& layer);            ///< [s, b, in]
std::vector<float> random_output_gradient(const LayerCase& layer);  ///< [s, b, out], or the loss scale

class LayerOnRank {
 public:
  /// Collective over the world, all of which is one tensor group.
  LayerOnRank(const LayerCase& layer, Communicator& world, bool sequence_parallel, bool training = true);

  const ParameterStore& store() const { return store_; }
  const TensorRegion& region() const { return region_; }
  void clear_gradients();
  /// Sums the partial gradients over the tensor ranks.
  void sum_gradients();

  /// y of this rank for a whole x. y is filled with NaN before.
  std::vector<double> forward(const std::vector<float>& whole_x);
  /// Term that the last forward of a layer with an output added to the loss; its gradient comes back with kLossScale.
  double loss() const { return loss_.values()[0]; }
  /// dx of this rank for a whole dy, after a forward. dx is filled with NaN before, or shares memory with dy.
  std::vector<float> backward(const std::vector<float>& whole_dy, bool in_place = false);
  /// The same, but weight gradients are deferred. dy and scratch hold NaN afterwards; `keep_dy`: scratch alone.
  std::vector<float> backward_deferred(const std::vector<float>& whole_dy, bool keep_dy);
  void run_deferred();  ///< adds what backward_deferred has deferred

  /// Where this rank's elements of a [s, b, width] tensor are in the whole one.
  std::vector<std::int64_t> indices(std::int64_t width, Cut cut) const;

 private:
  Owned<float> part_of(const std::vector<float>& whole, std::int64_t width, Cut cut) const;
  Context context(WeightGradients& weight_gradients = immediate_weight_gradients());
  Owned<float> dy_of(const std::vector<float>& whole) const;

  LayerCase case_;
  Backend backend_;
  ProcessGrid grid_;
  TensorRegion region_;
  ParameterStore store_;
  std::unique_ptr<TestedLayer> layer_;
  Buffer saved_memory_, scratch_memory_;
  Arena saved_, scratch_;
  Owned<std::int32_t> tokens_, targets_, position_ids_, positions_, types_, lengths_;
  Owned<std::int32_t> encoder_positions_, encoder_lengths_, labels_;
  MicroBatch micro_batch_;
  Owned<float> x_, dy_;
  Owned<double> loss_;
  DeferredWeightGradients deferred_;
  PassSettings pass_;
};

/// Whole results, put together from all ranks.
struct LayerResults {
  std::vector<double> y;
  std::vector<float> dx;
  NamedValues gradients;
  bool copies_agree = true;  ///< everything that several ranks hold has the same bits on all of them
};

LayerResults run_on_ranks(const LayerCase& layer, int tensor_ranks, bool sequence_parallel);

/// ‖a - b‖ / ‖b‖.
template <class T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double delta = static_cast<double>(a[i]) - static_cast<double>(b[i]), value = static_cast<double>(b[i]);
    difference += delta * delta;
    norm += value * value;
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

template <class T>
double norm_of(const std::vector<T>& values) {
  double sum = 0;
  for (const T value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

/// The size that a parameter's gradient is judged by: its norm, or for a key bias, whose gradient is zero in exact
/// arithmetic (a softmax does not see a shift of a whole row), the query bias'.
double gradient_size(const NamedValues& gradients, const std::string& name);

}  // namespace megatron::test
