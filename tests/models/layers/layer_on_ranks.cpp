#include "models/layers/layer_on_ranks.h"

#include <limits>
#include <mutex>

#include "backend/ops/backends.h"
#include "base/core/philox.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/gradient_reducer.h"

namespace megatron::test {

namespace {

constexpr std::size_t kArenaBytes = std::size_t{1} << 20;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Owned<std::int32_t> table(std::int64_t bound, std::uint64_t seed) {
  return {{kSequence, kSamples}, random_ids(kSequence * kSamples, bound, seed).values()};
}

}  // namespace

NamedValues random_parameters(const LayerCase& layer) {
  NamedValues values;
  run_as_threads(1, [&](Communicator& world) {
    const LayerOnRank whole(layer, world, false);
    for (const Parameter& parameter : whole.store().all()) {
      const bool norm_weight = parameter.initialization.constant == 1;
      const bool matrix = parameter.global_shape.rank() == 2;
      values[parameter.name] =
          random_tensor(parameter.global_shape, hash_name(parameter.name), matrix ? 0.4 : 0.3, norm_weight ? 1 : 0)
              .values();
    }
  });
  return values;
}

std::vector<float> random_input(const LayerCase& layer) {
  return random_tensor({kSequence, kSamples, layer.in}, 11).values();
}

std::vector<float> random_output_gradient(const LayerCase& layer) {
  if (layer.out == 0) return {static_cast<float>(kLossScale)};
  return random_tensor({kSequence, kSamples, layer.out}, 12).values();
}

LayerOnRank::LayerOnRank(const LayerCase& layer, Communicator& world, bool sequence_parallel, bool training)
    : case_(layer),
      backend_(make_cpu_backend()),
      grid_(world, {.tensor = world.size(), .kv_replicas = std::max(1, world.size() / static_cast<int>(layer.groups))}),
      region_(grid_, sequence_parallel),
      saved_("saved"),
      scratch_("scratch"),
      tokens_(table(kVocab, 1)),
      targets_(table(kVocab, 2)),
      position_ids_(table(kPositions, 3)),
      positions_(counting_ids(kSequence)),
      types_(table(2, 4)),
      lengths_({kSamples}, {kSequence, 5, 3}),
      encoder_positions_(counting_ids(kEncoderSequence)),
      encoder_lengths_({kSamples}, {11, kEncoderSequence, 1}),
      labels_({kSamples}, {1, -1, 0}),
      x_(Shape{0}),
      dy_(Shape{0}),
      loss_({1}),
      pass_{.training = training, .seed = 17, .step = 3, .gradient_scales = {&kLossScale, 1}} {
  ParameterBuilder builder(store_, region_);
  layer_ = case_.make(builder);
  store_.allocate(*backend_.device, DType::f32);
  store_.initialize(*backend_.ops, 1);
  saved_memory_ = Buffer(*backend_.device, kArenaBytes);
  scratch_memory_ = Buffer(*backend_.device, kArenaBytes);
  saved_ = Arena("saved", saved_memory_);
  scratch_ = Arena("scratch", scratch_memory_);
  micro_batch_ = {.main = {.tokens = tokens_,
                           .types = {},
                           .position_ids = position_ids_,
                           .positions = positions_,
                           .chunk_starts = {},
                           .whole_positions = {},
                           .document_starts = {},
                           .lengths = {},
                           .targets = targets_,
                           .weights = {},
                           .labels = {},
                           .sequence = kSequence},
                  .encoder = {.tokens = {},
                              .types = {},
                              .position_ids = {},
                              .positions = encoder_positions_,
                              .chunk_starts = {},
                              .whole_positions = {},
                              .document_starts = {},
                              .lengths = encoder_lengths_,
                              .targets = {},
                              .weights = {},
                              .labels = {},
                              .sequence = kEncoderSequence},
                  .first_sample = 5,
                  .samples = kSamples};
  if (!layer.encoder) return;
  micro_batch_.main.types = types_;
  micro_batch_.main.lengths = lengths_;
  micro_batch_.main.labels = labels_.tensor().slice(0, 0, kSamples / layer.columns);
}

Context LayerOnRank::context(WeightGradients& weight_gradients) {
  return {.ops = *backend_.ops,
          .region = region_,
          .saved = &saved_,
          .scratch = scratch_,
          .micro_batch = micro_batch_,
          .pass = pass_,
          .weight_gradients = &weight_gradients};
}

void LayerOnRank::clear_gradients() {
  backend_.ops->fill(store_.gradients(), 0);
}

void LayerOnRank::sum_gradients() {
  GradientReducer(grid_, store_).finish(*backend_.ops, scratch_);
}

std::vector<std::int64_t> LayerOnRank::indices(std::int64_t width, Cut cut) const {
  const bool columns = cut == Cut::columns;
  const std::int64_t local = columns ? width / region_.size() : width;
  const std::int64_t first_column = columns ? local * region_.rank() : 0;
  const std::int64_t first_row = columns ? 0 : region_.local_sequence_offset(kSequence);
  const std::int64_t rows = columns ? kSequence : region_.local_sequence_length(kSequence);
  std::vector<std::int64_t> result;
  for (std::int64_t row = first_row * kSamples; row < (first_row + rows) * kSamples; ++row) {
    for (std::int64_t column = first_column; column < first_column + local; ++column) {
      result.push_back(row * width + column);
    }
  }
  return result;
}

Owned<float> LayerOnRank::part_of(const std::vector<float>& whole, std::int64_t width, Cut cut) const {
  std::vector<float> part;
  for (const std::int64_t index : indices(width, cut)) part.push_back(whole[static_cast<std::size_t>(index)]);
  const bool columns = cut == Cut::columns;
  return {{columns ? kSequence : region_.local_sequence_length(kSequence), kSamples,
           columns ? width / region_.size() : width},
          std::move(part)};
}

Owned<float> LayerOnRank::dy_of(const std::vector<float>& whole) const {
  return case_.out == 0 ? Owned<float>({1}, whole) : part_of(whole, case_.out, case_.out_cut);
}

std::vector<double> LayerOnRank::forward(const std::vector<float>& whole_x) {
  Context run = context();
  saved_.reset();
  x_ = part_of(whole_x, case_.in, case_.in_cut);
  loss_ = Owned<double>({1});
  pass_.loss_sums = loss_;
  if (case_.out == 0) {
    layer_->forward(run, x_, {});
    return loss_.values();
  }
  Owned<float> y = part_of(std::vector<float>(static_cast<std::size_t>(kSequence * kSamples * case_.out), kNan),
                           case_.out, case_.out_cut);
  layer_->forward(run, x_, y);
  internal_check(scratch_.used() == 0, "a forward left something in the scratch arena");
  return as_doubles(y);
}

std::vector<float> LayerOnRank::backward(const std::vector<float>& whole_dy, bool in_place) {
  Context run = context();
  run.counts = false;
  dy_ = dy_of(whole_dy);
  Owned<float> dx(x_.shape(), kNan);
  layer_->backward(run, dy_, in_place ? dy_ : dx);
  internal_check(scratch_.used() == 0, "a backward left something in the scratch arena");
  return in_place ? dy_.values() : dx.values();
}

std::vector<float> LayerOnRank::backward_deferred(const std::vector<float>& whole_dy, bool keep_dy) {
  Context run = context(deferred_);
  run.counts = false;
  dy_ = dy_of(whole_dy);
  Owned<float> dx(x_.shape(), kNan);
  layer_->backward(run, dy_, dx);
  internal_check(scratch_.used() == 0, "a backward left something in the scratch arena");
  backend_.ops->fill(scratch_memory_.tensor({static_cast<std::int64_t>(kArenaBytes / sizeof(float))}, DType::f32),
                     kNan);
  if (!keep_dy) backend_.ops->fill(dy_, kNan);
  return dx.values();
}

void LayerOnRank::run_deferred() {
  Context run = context();
  deferred_.run(run);
  internal_check(scratch_.used() == 0, "weight gradients left something in the scratch arena");
}

namespace {

// Writes a rank's elements into the whole; those that an earlier rank has written must be the same.
template <class T>
void put_together(const std::vector<T>& part, const std::vector<std::int64_t>& indices, std::vector<T>& whole,
                  std::vector<bool>& written, bool& copies_agree) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto at = static_cast<std::size_t>(indices[i]);
    if (written[at] && whole[at] != part[i]) copies_agree = false;
    whole[at] = part[i];
    written[at] = true;
  }
}

struct RankResults {
  std::vector<double> y;
  std::vector<float> dx;
  std::vector<std::int64_t> y_indices, dx_indices;
  struct Gradient {
    std::string name;
    std::int64_t whole_elements;
    std::vector<float> values;
    std::vector<std::int64_t> indices;
  };
  std::vector<Gradient> gradients;
};

RankResults run_rank(const LayerCase& layer, const NamedValues& parameters, Communicator& world,
                     bool sequence_parallel) {
  LayerOnRank rank(layer, world, sequence_parallel);
  set_values(rank.store(), parameters);
  RankResults results;
  results.y = rank.forward(random_input(layer));
  results.y_indices = layer.out == 0 ? std::vector<std::int64_t>{0} : rank.indices(layer.out, layer.out_cut);
  results.dx = rank.backward(random_output_gradient(layer));
  results.dx_indices = rank.indices(layer.in, layer.in_cut);
  rank.sum_gradients();
  for (const Parameter& parameter : rank.store().all()) {
    const float* gradient = parameter.gradient.as<float>();
    RankResults::Gradient& result = results.gradients.emplace_back();
    result.name = parameter.name;
    result.whole_elements = parameter.global_shape.elements();
    result.values.assign(gradient, gradient + parameter.elements());
    for_each_run(parameter, [&](std::int64_t in_whole, std::int64_t, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) result.indices.push_back(in_whole + i);
    });
  }
  return results;
}

}  // namespace

LayerResults run_on_ranks(const LayerCase& layer, int tensor_ranks, bool sequence_parallel) {
  const NamedValues parameters = random_parameters(layer);
  std::vector<RankResults> ranks(static_cast<std::size_t>(tensor_ranks));
  run_as_threads(tensor_ranks, [&](Communicator& world) {
    ranks[static_cast<std::size_t>(world.rank())] = run_rank(layer, parameters, world, sequence_parallel);
  });

  LayerResults whole;
  const auto rows = static_cast<std::size_t>(kSequence * kSamples);
  whole.y.resize(layer.out == 0 ? 1 : rows * static_cast<std::size_t>(layer.out));
  whole.dx.resize(rows * static_cast<std::size_t>(layer.in));
  std::vector<bool> y_written(whole.y.size()), dx_written(whole.dx.size());
  std::map<std::string, std::vector<bool>> gradient_written;
  for (const RankResults& rank : ranks) {
    put_together(rank.y, rank.y_indices, whole.y, y_written, whole.copies_agree);
    put_together(rank.dx, rank.dx_indices, whole.dx, dx_written, whole.copies_agree);
    for (const RankResults::Gradient& gradient : rank.gradients) {
      std::vector<float>& values = whole.gradients[gradient.name];
      std::vector<bool>& written = gradient_written[gradient.name];
      values.resize(static_cast<std::size_t>(gradient.whole_elements));
      written.resize(values.size());
      put_together(gradient.values, gradient.indices, values, written, whole.copies_agree);
    }
  }
  return whole;
}

double gradient_size(const NamedValues& gradients, const std::string& name) {
  std::string judged_by = name;
  if (const auto key = name.find("key.bias"); key != std::string::npos) judged_by.replace(key, 8, "query.bias");
  return norm_of(gradients.at(judged_by));
}

}  // namespace megatron::test
