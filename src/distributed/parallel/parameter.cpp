#include "distributed/parallel/parameter.h"

#include <algorithm>

#include "base/core/philox.h"
#include "distributed/parallel/matrix_shards.h"

namespace megatron {

Shards shards_of(const GridShape& shape) {
  return {shape.shards(CopyGroup::dense), shape.shards(CopyGroup::experts)};
}

Shard shard_at(const GridCoordinates& at, const GridShape& shape) {
  return {shard_rank(CopyGroup::dense, at, shape), shard_rank(CopyGroup::experts, at, shape)};
}

int ParameterStore::declare(Parameter parameter, bool adjacent) {
  internal_check(values_.empty(), "parameter declared after the store was allocated");
  internal_check(names_.insert(parameter.name).second, "two parameters of one name on one rank");
  parameter.adjacent = adjacent;
  parameter.index = static_cast<int>(parameters_.size());
  parameters_.push_back(std::move(parameter));
  return parameters_.back().index;
}

int ParameterStore::declare_constant(const std::string& name, std::vector<float> numbers) {
  internal_check(values_.empty(), "constant declared after the store was allocated");
  for (std::size_t i = 0; i < constants_.size(); ++i) {
    if (constants_[i].name != name) continue;
    internal_check(constants_[i].numbers == numbers, "two constants of one name");
    return static_cast<int>(i);
  }
  constants_.push_back({name, std::move(numbers), {}});
  return static_cast<int>(constants_.size()) - 1;
}

int ParameterStore::declare_state(ModelState state) {
  internal_check(values_.empty(), "state declared after the store was allocated");
  internal_check(names_.insert(state.name).second, "two parameters of one name on one rank");
  states_.push_back(std::move(state));
  return static_cast<int>(states_.size()) - 1;
}

std::size_t ParameterStore::constant_bytes() const {
  std::int64_t elements = 0;
  for (const Constant& constant : constants_) {
    elements += round_up(static_cast<std::int64_t>(constant.numbers.size()), kFlatAlignment);
  }
  for (const ModelState& state : states_) elements += round_up(state.elements(), kFlatAlignment);
  return static_cast<std::size_t>(elements) * sizeof(float);
}

void ParameterStore::mark_tied(int index, int tie, bool owner) {
  Parameter& parameter = parameters_[static_cast<std::size_t>(index)];
  parameter.tie = tie;
  parameter.owner = parameter.owner && owner;
}

void ParameterStore::mark_layer(int first, int last) {
  internal_check(values_.empty(), "a layer is marked after the store was allocated");
  for (int i = first; i <= last; ++i) parameters_[static_cast<std::size_t>(i)].unit = units_;
  ++units_;
}

void ParameterStore::mark_measured(int index, int by) {
  parameters_[static_cast<std::size_t>(index)].measured_by = by;
}

void ParameterStore::mark_matrix(int index, double cost) {
  internal_check(values_.empty() && cost > 0, "a matrix is marked after the store was allocated, or without a cost",
                 cost);
  parameters_[static_cast<std::size_t>(index)].matrix_cost = cost;
  may_have_matrices_ = true;
}

void ParameterStore::set_views(Tensor values, Tensor gradients) {
  values_ = values;
  gradients_ = gradients;
  for (Parameter& parameter : parameters_) {
    const std::int64_t count = parameter.elements();
    parameter.value = read_values({parameter.first, count}).view(parameter.box.extent);
    if (gradients) parameter.gradient = made_gradients({parameter.first, count}).view(parameter.box.extent);
  }
}

// A bucket ends before and after a parameter that is tied (with shards), where the next one is copied by other ranks
// or, if copies divide gradients, of another layer, and when it has enough; never between parameters that must lie side
// by side.
void ParameterStore::lay_out(Shards shards, std::int64_t bucket_elements) {
  internal_check(shards.experts >= 1 && shards.dense % shards.experts == 0,
                 "copies of experts are some of those of dense parameters", shards.dense, shards.experts);
  shards_ = shards;
  const std::int64_t enough = std::max(bucket_elements, parameter_elements() / kMostBuckets);
  if (sharded() && may_have_matrices_) {
    internal_check(!shards.gradients, "gradients of matrices that are updated whole are not divided");
    buckets_ = lay_out_matrix_shards(parameters_, shards, enough);
    if (!buckets_.empty()) flat_elements_ = buckets_.back().end();
    place_divided();
    return;
  }
  const auto alone = [&](const Parameter& parameter) { return sharded() && parameter.tie != kNone; };
  const Parameter* last = nullptr;
  Bucket bucket;  // the one that is open
  for (Parameter& parameter : parameters_) {
    const bool with_last =
        last != nullptr && last->copies == parameter.copies && (!divides_gradients() || last->unit == parameter.unit);
    if (!parameter.adjacent) {
      if (bucket.count >= enough || !with_last || alone(parameter) || alone(*last)) close_bucket(bucket);
      flat_elements_ = round_up(flat_elements_, kFlatAlignment);
    }
    internal_check(!parameter.adjacent || with_last, "parameters that lie side by side are summed together");
    if (bucket.count == 0) {
      bucket.first = flat_elements_;
      bucket.copies = parameter.copies;
      bucket.first_parameter = parameter.index;
      if (divides_gradients()) bucket.unit = parameter.unit;
    }
    parameter.first = flat_elements_;
    flat_elements_ += parameter.elements();
    bucket.count = flat_elements_ - bucket.first;
    last = &parameter;
  }
  close_bucket(bucket);
  place_divided();
}

// Ranges that the rank keeps come first, each bucket's in its order; then the ring's buffers, as large as the largest
// layer.
void ParameterStore::place_divided() {
  divided_elements_ = flat_elements_;
  for (Bucket& bucket : buckets_) bucket.kept = bucket.first;
  if (!divides_gradients()) return;
  layers_.resize(static_cast<std::size_t>(units_));
  divided_elements_ = 0;
  std::int64_t largest = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    bucket.kept = divided_elements_;
    divided_elements_ += bucket.unit == kNone ? bucket.count : bucket.count / shards_.of(bucket.copies);
    if (bucket.unit == kNone) continue;
    DividedLayer& layer = layers_[static_cast<std::size_t>(bucket.unit)];
    if (layer.buckets++ == 0) {
      layer.first = bucket.first;
      layer.first_parameter = bucket.first_parameter;
      layer.first_bucket = i;
    }
    layer.count = bucket.end() - layer.first;
    largest = std::max(largest, layer.count);
  }
  const std::size_t buffers = std::min(layers_.size(), kRingBuffers);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].whole = divided_elements_ + static_cast<std::int64_t>(i % buffers) * largest;
  }
  divided_elements_ += static_cast<std::int64_t>(buffers) * largest;
}

std::int64_t ParameterStore::place_of_made(std::int64_t element) const {
  if (!divides_gradients()) return element;
  const Bucket& bucket = bucket_at(element);
  if (bucket.unit == kNone) return bucket.kept + element - bucket.first;
  const DividedLayer& layer = layers_[static_cast<std::size_t>(bucket.unit)];
  return layer.whole + element - layer.first;
}

// Experts that have one copy alone are whole where they are kept.
std::int64_t ParameterStore::place_of_read(std::int64_t element) const {
  if (!divides_weights()) return element;
  const Bucket& bucket = bucket_at(element);
  return divides_weights_of(bucket) ? place_of_made(element) : bucket.kept + element - bucket.first;
}

std::int64_t ParameterStore::place_of_kept(const FlatRange& range) const {
  const Bucket& bucket = bucket_at(range.first);
  std::int64_t first = range.first - bucket.first;
  if (bucket.unit != kNone) {
    const std::int64_t part = bucket.count / shards_.of(bucket.copies);
    first %= part;
    internal_check(first + range.count <= part, "a range that no copy has alone", range.first, range.count);
  }
  return bucket.kept + first;
}

Tensor ParameterStore::gradients_of(const FlatRange& range) const {
  return gradients_.slice(0, divides_gradients() ? place_of_kept(range) : range.first, range.count);
}

Tensor ParameterStore::values_of(const FlatRange& range) const {
  return values_.slice(0, divides_weights() ? place_of_kept(range) : range.first, range.count);
}

void ParameterStore::close_bucket(Bucket& bucket) {
  if (bucket.count == 0) return;
  if (sharded()) {
    bucket.count =
        round_up(bucket.count, kFlatAlignment * shards_.of(bucket.copies));  // every shard's part begins aligned, too
    flat_elements_ = bucket.end();
  }
  buckets_.push_back(bucket);
  bucket = {};
}

const Bucket& ParameterStore::bucket_at(std::int64_t element) const {
  return *std::partition_point(buckets_.begin(), buckets_.end(),
                               [&](const Bucket& bucket) { return bucket.end() <= element; });
}

const Bucket& ParameterStore::bucket_of(const Parameter& parameter) const {
  return bucket_at(parameter.first);
}

FlatRange ParameterStore::part_of(std::size_t bucket, Shard shard) const {
  const Bucket& whole = buckets_[bucket];
  internal_check(whole.equal_parts, "an equal part of a bucket that has others");
  const std::int64_t count = whole.count / shards_.of(whole.copies);
  return {whole.first + shard.of(whole.copies) * count, count};
}

std::vector<FlatRange> ParameterStore::owned_by(Shard shard) const {
  if (!sharded()) return {{0, flat_elements_}};
  std::vector<FlatRange> owned;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    const auto copy = static_cast<std::size_t>(shard.of(bucket.copies));
    owned.push_back(bucket.owned.empty() ? part_of(i, shard) : bucket.owned[copy]);
  }
  return owned;
}

std::vector<FlatRange> ParameterStore::parts_in(const Parameter& parameter, const std::vector<FlatRange>& ranges) {
  std::vector<FlatRange> parts;
  const std::int64_t begin = parameter.first, end = parameter.first + parameter.elements();
  auto range = std::partition_point(ranges.begin(), ranges.end(),
                                    [&](const FlatRange& before) { return before.end() <= begin; });
  for (; range != ranges.end() && range->first < end; ++range) {
    const std::int64_t first = std::max(begin, range->first), stop = std::min(end, range->end());
    if (first < stop) parts.push_back({first, stop - first});
  }
  return parts;
}

void ParameterStore::allocate(Device& device, DType value_type, Shards shards, std::int64_t bucket_elements) {
  lay_out(shards, bucket_elements);
  const Tensor values = allocate_flat(value_buffer_, device, value_elements(), value_type);
  set_views(values, allocate_flat(gradient_buffer_, device, divided_elements_, DType::f32));
  allocate_constants(device);
}

void ParameterStore::allocate_values(Device& device, DType value_type) {
  lay_out({}, kBucketElements);
  set_views(allocate_flat(value_buffer_, device, flat_elements_, value_type), {});
  allocate_constants(device);
}

Tensor ParameterStore::allocate_flat(Buffer& buffer, Device& device, std::int64_t elements, DType type) {
  buffer = Buffer(device, static_cast<std::size_t>(elements) * size_of(type));
  return buffer.tensor({elements}, type);
}

void ParameterStore::allocate_constants(Device& device) {
  constant_buffer_ = Buffer(device, constant_bytes());
  Arena arena("constants", constant_buffer_);
  place_constants(arena);
  const auto upload = [&](Tensor tensor, const std::vector<float>& numbers) {
    device.copy_to_device(tensor.data(), numbers.data(), tensor.bytes());
  };
  for (const Constant& constant : constants_) upload(constant.tensor, constant.numbers);
  for (const ModelState& state : states_) {
    upload(state.value, std::vector<float>(static_cast<std::size_t>(state.elements())));
  }
}

void ParameterStore::place_constants(Arena& arena) {
  for (Constant& constant : constants_) {
    constant.tensor = arena.allocate("a constant", {static_cast<std::int64_t>(constant.numbers.size())}, DType::f32);
  }
  for (ModelState& state : states_) state.value = arena.allocate("a state", state.box.extent, DType::f32);
}

void ParameterStore::allocate_sizing(DType value_type, Shards shards, std::int64_t bucket_elements) {
  lay_out(shards, bucket_elements);
  Arena values("values"), gradients("gradients");
  set_views(values.allocate("values", {value_elements()}, value_type),
            gradients.allocate("gradients", {divided_elements_}, DType::f32));
  Arena constants("constants");
  place_constants(constants);
}

void ParameterStore::initialize(Ops& ops, std::uint64_t seed) {
  draw_initial(ops, seed, values_);
  ops.fill(gradients_, 0);
}

void ParameterStore::draw_initial(Ops& ops, std::uint64_t seed, const FlatRange& range, Tensor numbers) const {
  internal_check(numbers.dtype() == DType::f32 && numbers.elements() == range.count,
                 "initial numbers need a flat f32 tensor of the range's size", numbers.dtype(), numbers.shape(),
                 range.count);
  ops.fill(numbers, 0);
  for (const Parameter& parameter : parameters_) {
    if (parameter.first < range.first || parameter.first >= range.end()) continue;
    const Tensor value =
        numbers.slice(0, parameter.first - range.first, parameter.elements()).view(parameter.box.extent);
    if (parameter.initialization.deviation <= 0) {
      ops.fill(value, parameter.initialization.constant);
      continue;
    }
    const bool matrix = parameter.global_shape.rank() == 2;
    internal_check(matrix, "only matrices are initialised from a normal distribution");
    ops.normal({.y = value,
                .key = random_key(seed, 0, hash_name(parameter.name)),
                .deviation = static_cast<float>(parameter.initialization.deviation),
                .first_row = parameter.box.offset[0],
                .first_column = parameter.box.offset[1],
                .global_columns = parameter.global_shape[1]});
  }
}

Tensor ParameterStore::joint(Tensor flat, std::int64_t first, int index, int count, std::int64_t columns) const {
  std::int64_t elements = 0;
  for (int i = index; i < index + count; ++i) {
    internal_check(at(i).first == at(index).first + elements, "joint view of parameters that are not adjacent",
                   at(i).first, at(index).first + elements);
    elements += at(i).elements();
  }
  const Tensor view = flat.slice(0, first, elements);
  return columns == 0 ? view : view.view({elements / columns, columns});
}

Tensor ParameterStore::joint_value(int index, int count, std::int64_t columns) const {
  return joint(values_, place_of_read(at(index).first), index, count, columns);
}

Tensor ParameterStore::joint_gradient(int index, int count, std::int64_t columns) const {
  return joint(gradients_, place_of_made(at(index).first), index, count, columns);
}

std::int64_t ParameterStore::parameter_elements() const {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters_) sum += parameter.elements();
  return sum;
}

}  // namespace megatron
