// The products that make the gradients of matrices: how one is cut, what it overlaps with, and that a deferred one adds
// the same bits later.
#include <algorithm>
#include <map>
#include <vector>

#include "backend/ops/backends.h"
#include "backend/ops/ops_decorator.h"
#include "distributed/comm/communicator_decorator.h"
#include "distributed/comm/thread_communicator.h"
#include "models/layers/layer_cases.h"
#include "models/layers/layer_on_ranks.h"
#include "models/layers/linear.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Events = std::vector<std::string>;

struct RecordedProducts final : OpsDecorator {
  RecordedProducts(std::unique_ptr<Ops> ops, Events& log) : OpsDecorator(std::move(ops)), events(&log) {}
  void matmul(const MatmulArgs& args) override {
    rows.push_back(args.c.dim(0));
    events->push_back(args.accumulate ? "weight product" : "product");
    OpsDecorator::matmul(args);
  }
  void pass(const char*, const std::function<void()>& call) override { call(); }
  std::vector<std::int64_t> rows;
  Events* events;
};

struct RecordedCommunicator final : CommunicatorDecorator {
  RecordedCommunicator(Communicator& inner, Events& log) : CommunicatorDecorator(inner), events(&log) {}
  RecordedCommunicator(std::unique_ptr<Communicator> inner, Events& log)
      : CommunicatorDecorator(std::move(inner)), events(&log) {}
  std::unique_ptr<Communicator> around(std::unique_ptr<Communicator> inner) const override {
    return std::make_unique<RecordedCommunicator>(std::move(inner), *events);
  }
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override {
    return started("gather", CommunicatorDecorator::do_all_gather(part, whole));
  }
  std::uint64_t do_reduce_scatter(ConstTensor whole, Tensor part) override {
    return started("sum", CommunicatorDecorator::do_reduce_scatter(whole, part));
  }
  std::uint64_t started(const std::string& what, std::uint64_t ticket) {
    events->push_back("start " + what);
    names[ticket] = what;
    return ticket;
  }
  void finish(std::uint64_t ticket) override {
    events->push_back("end " + names[ticket]);
    CommunicatorDecorator::finish(ticket);
  }
  std::map<std::uint64_t, std::string> names;
  Events* events;
};

/// Rows of the products that make the gradient of a column-parallel matrix [out, 3].
std::vector<std::int64_t> products(Communicator& world, int tensor, std::int64_t out) {
  const ProcessGrid grid(world, {.tensor = tensor, .data = world.size() / tensor});
  const TensorRegion region(grid, false);
  Backend backend = make_cpu_backend();
  Events events;
  RecordedProducts ops(std::move(backend.ops), events);
  Arena saved("saved"), scratch("scratch");
  const MicroBatch batch{};
  const PassSettings pass;
  Context context{ops, region, &saved, scratch, batch, pass};
  const Owned<float> dy = random_tensor({5, out}, 1), x = random_tensor({5, 3}, 2);
  Owned<float> gradient({out, 3});
  const WeightProduct product{
      .layer = WeightProduct::Layer::column_parallel, .dy = dy, .x = x, .gradient = gradient.tensor()};
  context.weight_gradients->add(context, product, context.weight_gradients->start_gather(context, product));
  std::vector<double> want(static_cast<std::size_t>(out * 3));
  for (std::int64_t row = 0; row < out * 3; ++row) {
    for (std::int64_t k = 0; k < 5; ++k) {
      want[static_cast<std::size_t>(row)] +=
          static_cast<double>(dy[k * out + row / 3]) * static_cast<double>(x[k * 3 + row % 3]);
    }
  }
  communicator_cases::expect(difference(gradient, want, 1e-5).empty(), "wrong gradient");
  return ops.rows;
}

/// Events in the backward of a column-parallel matrix [8, 6] under sequence parallelism on two ranks, and in the run of
/// the work that it has deferred.
std::vector<Events> column_parallel_events(Communicator& world, bool deferred) {
  Events events;
  RecordedCommunicator recorded(world, events);
  const ProcessGrid grid(recorded, {.tensor = 2});
  const TensorRegion region(grid, true);
  Backend backend = make_cpu_backend();
  RecordedProducts ops(std::move(backend.ops), events);
  const Buffer memory(*backend.device, 4096);
  Arena saved("saved"), scratch("scratch", memory);
  const MicroBatch batch{};
  DeferredWeightGradients later;
  WeightGradients& policy = deferred ? later : immediate_weight_gradients();
  const PassSettings pass;
  Context context{.ops = ops,
                  .region = region,
                  .saved = &saved,
                  .scratch = scratch,
                  .micro_batch = batch,
                  .pass = pass,
                  .weight_gradients = &policy};
  const Owned<float> dy = random_tensor({4, 1, 8}, 1), x = random_tensor({2, 1, 6}, 2),
                     weight = random_tensor({8, 6}, 3);
  Owned<float> gradient({8, 6}), dx({2, 1, 6});
  events.clear();
  column_parallel_backward(
      context, {.layer = WeightProduct::Layer::column_parallel, .dy = dy, .x = x, .gradient = gradient.tensor()},
      weight, dx);
  std::vector<Events> all = {events};
  events.clear();
  Context after = {ops, region, &saved, scratch, batch, pass};
  later.run(after);
  all.push_back(events);
  return all;
}

constexpr const char* kNextToHead = "Embedding next to a head";

struct RankGradients {
  std::vector<float> dx;
  NamedValues before, after;  // before and after the run of what was deferred
};

NamedValues gradients_of(const LayerOnRank& rank) {
  NamedValues values;
  for (const Parameter& parameter : rank.store().all()) {
    const float* gradient = parameter.gradient.as<float>();
    values[parameter.name].assign(gradient, gradient + parameter.elements());
  }
  return values;
}

/// Two micro-batches' backwards on each rank; with `deferred` each is followed by what it has deferred.
std::vector<RankGradients> play(const LayerCase& layer, int ranks, bool sequence_parallel, bool deferred) {
  const NamedValues parameters = random_parameters(layer);
  // A block promises nothing to its caller about dy, nor does an embedding next to a head; of the other layers dy must
  // live until the products have run.
  const bool keep_dy = layer.name.find("lock") == std::string::npos && layer.name != kNextToHead;
  std::vector<RankGradients> results(static_cast<std::size_t>(ranks));
  run_as_threads(ranks, [&](Communicator& world) {
    LayerOnRank rank(layer, world, sequence_parallel);
    set_values(rank.store(), parameters);
    RankGradients& result = results[static_cast<std::size_t>(world.rank())];
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      rank.forward(random_input(layer));
      const std::vector<float> dy = random_output_gradient(layer);
      result.dx = deferred ? rank.backward_deferred(dy, keep_dy) : rank.backward(dy);
      if (micro_batch == 0) result.before = gradients_of(rank);
      if (deferred) rank.run_deferred();
    }
    result.after = gradients_of(rank);
  });
  return results;
}

/// Whether the product that makes this matrix' gradient reads what the block makes again in its backward.
bool reads_recomputed(const std::string& layer, const std::string& matrix) {
  const auto at = layer.find(kRecomputing);
  if (at == std::string::npos) return false;
  const auto has = [&](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const std::string parts = layer.substr(at);
  const bool norms = has(parts, "norms"), product = has(parts, "feed-forward"),
             activated = product || has(parts, "act");
  const bool up = has(matrix, ".up.") || (has(matrix, ".gate.") && !has(matrix, "attention"));
  if (has(matrix, ".output.")) return false;
  if (has(matrix, ".down.")) return activated;
  if (up && product) return true;
  if (has(matrix, ".experts.") || !norms) return false;
  // Keys and values of another stream have no norm here, and a post-norm layer's attention reads the layer's input.
  if (has(matrix, "cross_attention.")) return has(matrix, "query");
  return !(has(matrix, ".attention.") && has(layer, "Post-norm"));
}

bool all_zero(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

}  // namespace

TEST_CASE("weight gradient: halves are whole tiles of 128 rows") {
  using Rows = std::vector<std::int64_t>;
  run_as_threads(2, [](Communicator& world) {
    for (const auto& [out, want] : std::vector<std::pair<std::int64_t, Rows>>{
             {600, {256, 344}}, {512, {256, 256}}, {256, {128, 128}}, {255, {255}}, {7, {7}}}) {
      communicator_cases::expect(products(world, 2, out) == want, "{} rows", out);
      communicator_cases::expect(products(world, 1, out) == Rows{out}, "{} rows on one tensor rank", out);
    }
  });
}

TEST_CASE("weight gradient: communication is in flight under both products") {
  run_as_threads(2, [](Communicator& world) {
    const std::vector<Events> immediate = {
        {"start gather", "product", "start sum", "end gather", "weight product", "end sum"}, {}};
    const std::vector<Events> deferred = {{"product", "start sum", "end sum"},
                                          {"start gather", "end gather", "weight product"}};
    communicator_cases::expect(column_parallel_events(world, false) == immediate, "immediate");
    communicator_cases::expect(column_parallel_events(world, true) == deferred, "deferred");
  });
}

TEST_CASE("deferred weight gradients: the same bits after scratch is overwritten") {
  const int ranks = GENERATE(1, 2, 4);
  const bool sequence_parallel = GENERATE(false, true);
  for (const double dropout : {0.0, 0.2}) {
    for (const LayerCase& layer : layer_cases(dropout)) {
      INFO(layer.name << " on " << ranks << " ranks, sequence parallel: " << sequence_parallel << ", dropout "
                      << dropout);
      const auto immediate = play(layer, ranks, sequence_parallel, false);
      const auto deferred = play(layer, ranks, sequence_parallel, true);
      const bool recomputed = layer.name.starts_with("Recomputed");
      for (std::size_t rank = 0; rank < immediate.size(); ++rank) {
        CHECK(deferred[rank].dx == immediate[rank].dx);
        for (const auto& [name, gradient] : immediate[rank].after) {
          INFO(name);
          CHECK(deferred[rank].after.at(name) == gradient);
          const bool matrix = name.ends_with(".weight") && name.find("norm") == std::string::npos;
          // An embedding has no product, but next to a head its look-up is deferred as one;
          if (!matrix || (layer.in == 0 && layer.name != kNextToHead)) continue;
          if (name.starts_with("relative")) continue;  // a table of biases has none
          // Experts without drops compute activations again, which nothing keeps.
          const bool at_once =
              layer.name.find("without drops") != std::string::npos && name.find(".experts.") != std::string::npos;
          // The last of four ranks has padding alone.
          const bool in_forward =
              layer.name.ends_with(kInChunks) && name == "embedding.word.weight" && !all_zero(gradient);
          CHECK(all_zero(deferred[rank].before.at(name)) !=
                (recomputed || at_once || in_forward || reads_recomputed(layer.name, name)));
        }
      }
    }
  }
}
