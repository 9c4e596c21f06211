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

/// Bytes that a step sends to the copies that share: the sums of its gradients, and values; and to those of other sets.
std::int64_t bytes_of_step(const Config& config, Alone& rank, std::int64_t* between_sets = nullptr) {
  TinyBatches batches(config, 0);
  Timers timers;
  rank.replica.optimizer().set_values_from_master();  // divided: those of the first layers for the step
  TrafficMeter meter, between;
  rank.grid.shards().set_meter(&meter);
  rank.grid.replicas().set_meter(&between);
  rank.replica.forward_backward(batches.step(1), 1, batches.loss(), timers);
  rank.replica.optimizer().set_values_from_master();
  rank.grid.shards().set_meter(nullptr);
  rank.grid.replicas().set_meter(nullptr);
  if (between_sets != nullptr) *between_sets = between.bytes_sent;
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
  const std::string schedule = GENERATE("1f1b", "gpipe");
  const ShareRow& share = row_named(kShares, name);
  CAPTURE(data, micro_batches, name, layers, schedule);
  Config config = divided(data, micro_batches, name);
  config.model.layers = layers;
  config.parallel.schedule = schedule;
  Alone rank(config, data);
  const Sizes sizes(rank.replica.store());
  CHECK((sizes.layers > 0) == share.gradients);
  const ShareTraffic step{.micro_batches = static_cast<double>(micro_batches),
                          .layers = static_cast<double>(layers),
                          .forwards_in_a_row = schedule == "gpipe" ? static_cast<double>(micro_batches) : 1};
  const double numbers =
      static_cast<double>(sizes.layers) * share.traffic(step) + 2 * static_cast<double>(sizes.others);
  const std::int64_t bytes = bytes_of_step(config, rank);
  CHECK(bytes == std::llround(4 * numbers / data * (data - 1)));
  CHECK(rank.replica.plan().gradient_bytes == static_cast<double>(bytes));
}

TEST_CASE("shares: sets send each other sums of parts, once a step") {
  const std::string name = GENERATE("state", "gradients", "weights");
  const std::int64_t micro_batches = GENERATE(1, 3);
  CAPTURE(name, micro_batches);
  Config config = divided(8, micro_batches, name);
  config.optimizer.share_within = 4;
  Alone rank(config, 8);
  std::int64_t between = 0;
  const std::int64_t within = bytes_of_step(config, rank, &between);
  CHECK(between == 4 * rank.replica.store().flat_elements() / 4);  // 2 (sets - 1) / sets numbers for each of a part
  Alone four(divided(4, micro_batches, name), 4);
  CHECK(within == bytes_of_step(divided(4, micro_batches, name), four));
  CHECK(rank.replica.plan().gradient_bytes == static_cast<double>(within + between));
}

TEST_CASE("shares: numbers sent by stages of ZeRO, by hand") {
  const auto numbers = [](const char* share, double micro_batches, double layers, double in_a_row = 1) {
    return row_named(kShares, share).traffic({micro_batches, layers, in_a_row});
  };
  CHECK(numbers("none", 8, 24) == 2);
  CHECK(numbers("state", 8, 24) == 2);
  CHECK(numbers("gradients", 8, 24) == 9);
  CHECK(numbers("weights", 8, 24) == Approx(3 * 8 - 2 * 15.0 / 24));
  CHECK(numbers("weights", 8, 24, 8) == Approx(3 * 8 - 2.0 / 24));  // gpipe
  CHECK(numbers("weights", 1, 2) == 2);
  CHECK(numbers("weights", 8, 1) == 9);
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
