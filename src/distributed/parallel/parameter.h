// Parameter: the one record that says what a weight is, which part of it this rank holds, and who answers for it.
//
// Initialisation, gradient sums, the norm, weight decay, checkpointing and reshaping read this record and nothing else.
// ParameterStore owns the memory: one flat buffer of values, one of f32 gradients, in the order of declaration or,
// where shards hold whole matrices, in that of matrix_shards.h; and a little one of constants.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "backend/tensor/memory.h"
#include "backend/tensor/tensor.h"
#include "base/core/role.h"
#include "base/core/shares.h"
#include "distributed/comm/process_grid.h"

namespace megatron {

/// A rectangular part of a global tensor.
struct Box {
  Shape offset, extent;
};

/// The effect of the tensor axis on a parameter.
enum class Placement {
  split,          ///< each rank holds another part
  replica,        ///< same value, and every rank computes the whole gradient
  partial,        ///< same value; the gradient must be summed over the tensor group
  kv_replicated,  ///< split, by fewer parts than there are ranks: the grid's kv_replicas group holds the same one, and
                  ///< the gradient must be summed over that group
};

struct Initialization {
  double deviation = 0;  ///< > 0: normal; else `constant` everywhere
  double constant = 0;
};

/// In place of the index of a parameter, constant or tie: there is none.
inline constexpr int kNone = -1;

/// Values of Parameter::layer for what the forward pass uses before all layers, or after them.
inline constexpr std::int64_t kBeforeLayers = -1, kAfterLayers = std::numeric_limits<std::int64_t>::max();

struct Parameter {
  explicit Parameter(Role of) : role(of) {}

  std::string name;  ///< layout-independent: "layers.7.attention.query.weight"
  Role role;
  std::int64_t layer = kBeforeLayers;  ///< where the forward pass first uses it: number among the whole model's layers,
                                       ///< a decoder's after its encoder's. Inside a layer, declarations are in order
  Shape global_shape;
  Box box;  ///< this rank's part of the global tensor
  Placement tensor = Placement::replica;
  CopyGroup copies = CopyGroup::dense;  ///< ranks that hold the same box, over which the gradient must be summed
  int tie = kNone;    ///< the grid's tie whose stages hold the same box, over which the gradient must be summed
  bool owner = true;  ///< exactly one rank of each copy of the model counts each element. A copy of the model is tensor
                      ///< × pipeline; of its experts tensor × pipeline × expert
  int measured_by = kNone;  ///< index of the parameter whose gradient is the scale for errors of this one's, which is 0
                            ///< in exact arithmetic, or nearly
  Initialization initialization;
  bool fixed_size = false;     ///< no dimension grows with the model's width: a bias of logits
  bool from_products = false;  ///< its gradient is a sum of WeightProducts alone (models/layers/weight_gradients.h)
  double matrix_cost = 0;      ///< > 0: its update needs the whole box, and is this much work for a rank. Other updates
                               ///< work element by element

  int unit = kNone;        ///< number of its layer among this rank's, from mark_layer() on
  int index = kNone;       ///< among the store's parameters, in the order of declaration
  bool adjacent = false;   ///< lies directly after its predecessor
  std::int64_t first = 0;  ///< first element in the flat buffers, from allocate() on
  Tensor value;            ///< view of box.extent. Where copies divide weights, a layer's are valid in its passes alone
  Tensor gradient;         ///< f32, same shape

  std::int64_t elements() const { return box.extent.elements(); }
  /// Weight decay applies: not to biases, norms and whatever else has one dimension.
  bool decays() const { return global_shape.rank() > 1 && role != Role::vector && role != Role::norm; }
};

/// Numbers of the model that no gradient trains: a router's choice bias. f32, 0 at first, equal on all ranks of a
/// stage, and changed by the same rule on each. Checkpoints hold them as tensors without an optimizer's states.
struct ModelState : Parameter {
  std::int64_t row = 0;  ///< its row of the counts that change it: the layer's place among those that have such numbers
};

/// A state of the optimizer: f32 or bf16, one number per element of a parameter.
struct NamedState {
  std::string name;  ///< as its update rule and checkpoints have it: "m"
  Tensor numbers;
};
/// The numbers of this name; absent if there are none.
inline Tensor numbers_of(const std::vector<NamedState>& states, std::string_view name) {
  const auto found = std::find_if(states.begin(), states.end(), [&](const auto& state) { return state.name == name; });
  return found == states.end() ? Tensor() : found->numbers;
}

/// A slice that a checkpoint reads or writes: `count` elements of a parameter's box, from flat element `first` of the
/// box on, with the states that the optimizer keeps of them. All contiguous [count]; the value f32, states f32 or bf16.
struct TensorSlice {
  std::string name;
  Shape global_shape;
  Box box;
  std::int64_t first = 0, count = 0;
  Tensor value = {};
  std::vector<NamedState> states = {};  ///< each name once; none: weights only, or a tensor that no optimizer trains

  /// Numbers that a checkpoint has of it.
  std::int64_t numbers() const { return count * static_cast<std::int64_t>(1 + states.size()); }
};

/// A range of the flat buffers, in elements.
struct FlatRange {
  std::int64_t first = 0, count = 0;
  std::int64_t end() const { return first + count; }
};

/// A range that is summed, and shared out among copies, as one.
struct Bucket : FlatRange {
  CopyGroup copies = CopyGroup::dense;
  int first_parameter = kNone;  ///< the least index of those that lie in it
  /// Where copies own whole matrices: the range of each that has its parameters. Otherwise each has an equal part.
  std::vector<FlatRange> owned = {};
  /// Every copy's part is as long, and owned ranges begin with it. Otherwise owned ranges lie one after the other.
  bool equal_parts = true;

  int unit = kNone;       ///< Parameter::unit of all that lie in it, where copies divide layers' gradients
  std::int64_t kept = 0;  ///< where this rank's sums of it begin in gradients(), and its values in values() if copies
                          ///< divide weights; of a unit's: those of its part
};

/// A layer of which copies divide gradients, perhaps weights: its buckets lie one after the other.
struct DividedLayer : FlatRange {
  int first_parameter = kNone;
  std::size_t first_bucket = 0, buckets = 0;
  std::int64_t whole = 0;  ///< where it is whole, at times, in gradients(), and so in values(): a buffer of the ring
};

/// How many ranks of each copy group divide the optimizer's state among them: 1, or those of ProcessGrid::shards().
struct Shards {
  int dense = 1, experts = 1;
  bool gradients = false;  ///< whether they also divide the sums of layers' gradients
  bool weights = false;    ///< and with these layers' values
  int of(CopyGroup group) const { return group == CopyGroup::experts ? experts : dense; }
};

/// A rank's number among them.
struct Shard {
  int dense = 0, experts = 0;
  int of(CopyGroup group) const { return group == CopyGroup::experts ? experts : dense; }
};

Shards shards_of(const GridShape& shape);
Shard shard_at(const GridCoordinates& at, const GridShape& shape);

class ParameterStore {
 public:
  static constexpr std::int64_t kBucketElements = std::int64_t{4} << 20;
  static constexpr std::int64_t kMostBuckets = 256;  ///< they may all be in flight: larger models have larger ones

  /// Registers a parameter (its place and views are set by allocate()). Parameters that are declared with `adjacent`
  /// lie directly after their predecessor, so that several records can be one matrix to a matmul; all others start at
  /// a multiple of 16 elements. Returns its index.
  int declare(Parameter parameter, bool adjacent = false);

  /// Says that the parameter has copies on the stages of a tie of the grid: their gradients are summed, one counts.
  void mark_tied(int index, int tie, bool owner);

  /// Says that these parameters, in the order of declaration, are a layer: all of a micro-batch's gradients of them are
  /// made in one backward of it, in which those of no other layer are. Before allocate().
  void mark_layer(int first, int last);

  /// Says that the parameter's gradient is 0 in exact arithmetic, or nearly: the gradient of `by` is the scale for its
  /// errors.
  void mark_measured(int index, int by);

  /// Says that the parameter's update needs the whole matrix, and is this much work: a function of what all ranks know
  /// that hold a part of it. Before allocate().
  void mark_matrix(int index, double cost);
  /// Says that some rank may have such parameters: other experts of a layer, perhaps. All copies must lay out alike.
  void expect_matrices() { may_have_matrices_ = true; }

  /// Registers numbers that layers compute with and that are not trained (slopes, frequencies): f32, on the device from
  /// allocate() on. Those of an equal name are the same and kept once. Returns their index.
  int declare_constant(const std::string& name, std::vector<float> numbers);

  /// Registers numbers that are not trained and that checkpoints hold. Returns their index among states().
  int declare_state(ModelState state);

  /// Allocates both flat buffers and sets the views; gradients are `f32` whatever the values are. After this nothing
  /// can be declared. With `shards` every bucket is padded so that it can be cut into as many equal parts as its group
  /// has, and a tied parameter is a separate bucket: its parts are then the same elements on each of its stages.
  /// Buckets of matrices that are updated whole are shared out as matrix_shards.h says.
  /// Where shards divide gradients, buckets end with layers, and gradients of layers are made in a ring of buffers,
  /// whose views are valid while the layer has its buffer (gradient_ring.h). There are none of matrices then. Where
  /// they divide weights, so do values (weight_ring.h).
  void allocate(Device& device, DType value_type, Shards shards = {}, std::int64_t bucket_elements = kBucketElements);
  /// Values alone, for models that only run forward: gradients() stays empty.
  void allocate_values(Device& device, DType value_type);
  /// As allocate, but with addresses that must not be dereferenced: for planning.
  void allocate_sizing(DType value_type, Shards shards = {}, std::int64_t bucket_elements = kBucketElements);

  /// Sets f32 values from their Initialization and gradients to 0. (Optimizer::initialize does values of any type.)
  void initialize(Ops& ops, std::uint64_t seed);
  /// Sets `numbers`, flat f32 [flat_elements], to the parameters' initial ones, as functions of (seed, name, global
  /// element index); gaps to 0.
  void draw_initial(Ops& ops, std::uint64_t seed, Tensor numbers) const {
    draw_initial(ops, seed, {0, flat_elements_}, numbers);
  }
  /// The same for a range of whole parameters: f32 [range.count].
  void draw_initial(Ops& ops, std::uint64_t seed, const FlatRange& range, Tensor numbers) const;

  const std::vector<Parameter>& all() const { return parameters_; }
  const Parameter& at(int index) const { return parameters_[static_cast<std::size_t>(index)]; }
  /// One view over `count` adjacent parameters from `index` on, as a matrix [rows, columns] (columns 0: a vector).
  Tensor joint_value(int index, int count, std::int64_t columns) const;
  Tensor joint_gradient(int index, int count, std::int64_t columns) const;

  ConstTensor constant(int index) const { return constants_[static_cast<std::size_t>(index)].tensor; }
  std::size_t constant_bytes() const;  ///< states included
  const std::vector<ModelState>& states() const { return states_; }
  const ModelState& state(int index) const { return states_[static_cast<std::size_t>(index)]; }

  std::int64_t flat_elements() const { return flat_elements_; }  ///< with gaps and padding
  std::int64_t parameter_elements() const;                       ///< on this rank, without gaps
  /// All memory of values: flat [flat_elements] but where copies divide weights, [as gradients()].
  Tensor values() const { return values_; }
  Tensor gradients() const {
    return gradients_;
  }  ///< f32, all memory of gradients; gaps stay 0. [flat_elements] in the
     ///< order of values, unless copies divide layers' gradients
  /// The gradients of a range that lies in what one copy owns: after all sums, the sums. f32 [range.count].
  Tensor gradients_of(const FlatRange& range) const;
  /// The place where the gradients of a range in one bucket are made, before sums over copies. f32 [range.count].
  Tensor made_gradients(const FlatRange& range) const {
    return gradients_.slice(0, place_of_made(range.first), range.count);
  }
  /// The values of a range that lies in what one copy owns, which that copy always has. [range.count].
  Tensor values_of(const FlatRange& range) const;
  /// The place where a pass reads the values of a range in one bucket. [range.count].
  Tensor read_values(const FlatRange& range) const { return values_.slice(0, place_of_read(range.first), range.count); }

  /// All parameters, in pieces that hold about bucket_elements of one copy group each: what is summed as one, perhaps
  /// while the backward still runs. In the buffer's order, which is that of their first parameters.
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// The bucket that has the parameter.
  const Bucket& bucket_of(const Parameter& parameter) const;
  const Bucket& bucket_at(std::int64_t element) const;
  bool sharded() const { return shards_.dense > 1; }
  bool divides_gradients() const { return sharded() && shards_.gradients; }
  bool divides_weights() const { return divides_gradients() && shards_.weights; }
  /// Whether copies divide the values of this bucket's parameters.
  bool divides_weights_of(const Bucket& bucket) const {
    return divides_weights() && bucket.unit != kNone && shards_.of(bucket.copies) > 1;
  }
  /// Where copies divide layers' gradients: those of this rank's layers, by their unit; else empty.
  const std::vector<DividedLayer>& layers() const { return layers_; }
  /// Buffers in which layers' gradients, and their values, are whole: consecutive layers have different ones.
  static constexpr std::size_t kRingBuffers = kWholeLayers;
  /// The part of a bucket of equal parts that belongs to a rank of its copies, where there are shards.
  FlatRange part_of(std::size_t bucket, Shard shard) const;
  /// The ranges whose optimizer state a rank keeps: one of every bucket, which may be empty, or everything (in one
  /// range) where there are no shards. In the buffer's order.
  std::vector<FlatRange> owned_by(Shard shard) const;
  /// The parts of a parameter that lie in `ranges`, which are in the buffer's order.
  static std::vector<FlatRange> parts_in(const Parameter& parameter, const std::vector<FlatRange>& ranges);

 private:
  static Tensor allocate_flat(Buffer& buffer, Device& device, std::int64_t elements, DType type);
  void allocate_constants(Device& device);
  void place_constants(Arena& arena);
  void set_views(Tensor values, Tensor gradients);
  void lay_out(Shards shards, std::int64_t bucket_elements);
  void close_bucket(Bucket& bucket);
  void place_divided();
  std::int64_t value_elements() const { return divides_weights() ? divided_elements_ : flat_elements_; }
  std::int64_t place_of_kept(const FlatRange& range) const;
  std::int64_t place_of_made(std::int64_t element) const;
  std::int64_t place_of_read(std::int64_t element) const;
  Tensor joint(Tensor flat, std::int64_t first, int index, int count, std::int64_t columns) const;

  struct Constant {
    std::string name;
    std::vector<float> numbers;
    Tensor tensor;
  };

  std::vector<Parameter> parameters_;
  std::set<std::string> names_;
  std::vector<Constant> constants_;
  std::vector<ModelState> states_;
  Buffer constant_buffer_;
  std::int64_t flat_elements_ = 0, divided_elements_ = 0;
  Buffer value_buffer_, gradient_buffer_;
  Tensor values_, gradients_;
  std::vector<Bucket> buckets_;
  int units_ = 0;
  std::vector<DividedLayer> layers_;
  bool may_have_matrices_ = false;
  Shards shards_;
};

}  // namespace megatron
