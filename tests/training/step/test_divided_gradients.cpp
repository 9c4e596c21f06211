// optimizer.share = "gradients" and "weights": what a rank holds and what it sends, in numbers. The bits of what it
// trains are rows of tests/parity/rows_of_shares.cpp.
#include <algorithm>
#include <cmath>
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

/// Bytes that a step sends to copies: the sums of its gradients, and values.
std::int64_t bytes_of_step(const Config& config, Alone& rank) {
  TinyBatches batches(config, 0);
  Timers timers;
  rank.replica.optimizer().set_values_from_master();  // divided: those of the first layers for the step
  TrafficMeter meter;
  rank.grid.copies().set_meter(&meter);
  rank.replica.forward_backward(batches.step(1), 1, batches.loss(), timers);
  rank.replica.optimizer().set_values_from_master();
  rank.grid.copies().set_meter(nullptr);
  return meter.bytes_sent;
}

struct Sizes {
  std::int64_t layers = 0, largest = 0, others = 0;
  explicit Sizes(const ParameterStore& store) {
    for (const DividedLayer& layer : store.layers()) {
      layers += layer.count;
      largest = std::max(largest, layer.count);
    }
    others = store.flat_elements() - layers;
  }
};

}  // namespace

TEST_CASE("shares: a step sends as many numbers of a layer as their table says") {
  const int data = GENERATE(2, 4);
  const std::int64_t micro_batches = GENERATE(1, 3);
  const std::string name = GENERATE("state", "gradients", "weights");
  const std::int64_t layers = GENERATE(1, 2, 5);
  const ShareRow& share = row_named(kShares, name);
  CAPTURE(data, micro_batches, name, layers);
  Config config = divided(data, micro_batches, name), cut = divided(data, micro_batches, "gradients");
  config.model.layers = cut.model.layers = layers;
  Alone rank(config, data);
  const Alone reference(cut, data);
  const Sizes sizes(reference.replica.store());
  REQUIRE(sizes.layers > 0);
  const double numbers = static_cast<double>(sizes.layers) *
                             share.traffic(static_cast<double>(micro_batches), static_cast<double>(layers)) +
                         2 * static_cast<double>(sizes.others);
  CHECK(bytes_of_step(config, rank) == std::llround(4 * numbers / data * (data - 1)));
}

TEST_CASE("shares: what m micro-batches of L layers send is 3 m, but at the turns") {
  CHECK(row_named(kShares, "none").traffic(8, 24) == 2);
  CHECK(row_named(kShares, "state").traffic(8, 24) == 2);
  CHECK(row_named(kShares, "gradients").traffic(8, 24) == 9);
  CHECK(row_named(kShares, "weights").traffic(8, 24) == Approx(3 * 8 - 2 * 15.0 / 24));
  CHECK(row_named(kShares, "weights").traffic(1, 2) == 2);
  CHECK(row_named(kShares, "weights").traffic(8, 1) == 9);
}

TEST_CASE("divided gradients: two layers' are whole, and a part of all others") {
  const int data = GENERATE(2, 4, 8);
  CAPTURE(data);
  const Config config = divided(data, 1, GENERATE("gradients", "weights"));
  Alone rank(config, data);
  const ParameterStore& store = rank.replica.store();
  const Sizes sizes(store);
  const std::int64_t parts = sizes.others + sizes.layers / data + 2 * sizes.largest;
  CHECK(store.layers().size() == static_cast<std::size_t>(config.model.layers));
  CHECK(store.gradients().elements() == parts);
  CHECK(store.values().elements() == (config.optimizer.shares().weights ? parts : store.flat_elements()));
  CHECK(rank.replica.used().gradients == static_cast<std::size_t>(4 * store.gradients().elements()));
  CHECK(rank.replica.used().weights == store.values().bytes() + store.constant_bytes());
}
