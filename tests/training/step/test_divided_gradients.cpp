// optimizer.share = "gradients": what a rank holds of gradients and what it sends, in numbers. The bits of what it
// trains are rows of tests/parity/rows_of_shares.cpp.
#include <algorithm>
#include <string>

#include "backend/ops/backends.h"
#include "base/core/shares.h"
#include "distributed/comm/counting_communicator.h"
#include "support/catch.h"
#include "support/tiny_training.h"
#include "training/step/grid.h"
#include "training/step/replica.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// A replica of one data rank, the others being imagined.
struct Alone {
  CountingCommunicator world;
  ProcessGrid grid;
  Backend backend = make_cpu_backend();
  Replica replica;

  Alone(const Config& config, int data)
      : world(0, data), grid(world, grid_shape(config)), replica(config, grid, backend) {}
};

Config divided(int data, std::int64_t micro_batches, const std::string& share) {
  Config config = tiny_config();
  config.parallel.data = data;
  config.optimizer.share = share;
  config.train.global_batch_size = config.train.micro_batch_size * data * micro_batches;
  return config;
}

/// Bytes that a step sends to copies: the sums of its gradients, and its new values.
std::int64_t bytes_of_step(const Config& config, Alone& rank) {
  TrafficMeter meter;
  rank.grid.copies().set_meter(&meter);
  TinyBatches batches(config, 0);
  Timers timers;
  rank.replica.forward_backward(batches.step(1), 1, batches.loss(), timers);
  rank.replica.optimizer().set_values_from_master();
  rank.grid.copies().set_meter(nullptr);
  return meter.bytes_sent;
}

}  // namespace

TEST_CASE("divided gradients: a step sends m + 1 numbers of each of a layer") {
  const int data = GENERATE(2, 4);
  const std::int64_t micro_batches = GENERATE(1, 3);
  const std::string name = GENERATE("state", "gradients");
  const ShareRow& share = row_named(kShares, name);
  CAPTURE(data, micro_batches, name);
  const Config config = divided(data, micro_batches, name), cut = divided(data, micro_batches, "gradients");
  Alone rank(config, data);
  const Alone reference(cut, data);
  std::int64_t layers = 0;
  for (const LayerGradients& layer : reference.replica.store().layers()) layers += layer.count;
  const std::int64_t others = rank.replica.store().flat_elements() - layers;
  REQUIRE(layers > 0);
  const auto m = static_cast<double>(micro_batches);
  const double numbers = static_cast<double>(layers) * share.traffic(m) + 2 * static_cast<double>(others);
  CHECK(bytes_of_step(config, rank) == static_cast<std::int64_t>(4 * numbers) / data * (data - 1));
}

TEST_CASE("divided gradients: two layers' are whole, and a part of all others") {
  const int data = GENERATE(2, 4, 8);
  CAPTURE(data);
  const Config config = divided(data, 1, "gradients");
  Alone rank(config, data);
  const ParameterStore& store = rank.replica.store();
  std::int64_t layers = 0, largest = 0;
  for (const LayerGradients& layer : store.layers()) {
    layers += layer.count;
    largest = std::max(largest, layer.count);
  }
  const std::int64_t others = store.flat_elements() - layers;
  CHECK(store.layers().size() == static_cast<std::size_t>(config.model.layers));
  CHECK(store.gradients().elements() == others + layers / data + 2 * largest);
  CHECK(rank.replica.used().gradients == static_cast<std::size_t>(4 * store.gradients().elements()));
}
