// How ranks agree on a run: the same configuration and data everywhere, or the same error.
#include "training/loop/run_start.h"

#include <sched.h>
#include <unistd.h>

#include "base/system/host_name.h"
#include "support/catch.h"
#include "support/errors_by_rank.h"
#include "support/small_corpus.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Started {
  Config config;
  std::vector<std::string> warnings;
  std::int64_t samples = 0;
};

/// agree_on_run on thread ranks, of which rank r has `config_of(r)`; what each came to.
struct Start {
  std::vector<Started> ranks;
  std::vector<std::string> errors;
};

Start start(int ranks, const std::function<Config(int rank)>& config_of) {
  Start result;
  result.ranks.resize(static_cast<std::size_t>(ranks));
  result.errors = errors_by_rank(ranks, [&](Communicator& world) {
    Started& mine = result.ranks[static_cast<std::size_t>(world.rank())];
    const ResolvedRun resolved = agree_on_run(config_of(world.rank()), world, mine.warnings);
    mine.config = resolved.config;
    mine.samples = resolved.datasets->facts().train_samples;
  });
  return result;
}

using Errors = std::vector<std::string>;

Config on_cpu(Config config) {
  config.run.device = "cpu";
  return config;
}

}  // namespace

TEST_CASE("run start: every rank has the resolved configuration and the data") {
  const ShardFolder folder;
  const Config config = on_cpu(small_run(folder, 2, 1));
  const Start started = start(4, [&](int) { return config; });
  CHECK(started.errors == Errors(4));
  for (const Started& rank : started.ranks) {
    CHECK(rank.config.parallel.data == 2);      // was 0: what remains of four ranks
    CHECK(rank.config.model.vocab_size == 50);  // the corpus'
    CHECK(rank.samples == started.ranks[0].samples);
    CHECK(rank.samples == (2354 - 1) / 16);  // 969 per mille of 2430 tokens
    CHECK(rank.warnings == started.ranks[0].warnings);
  }
}

TEST_CASE("run start: another configuration on a rank stops all with its line") {
  const ShardFolder folder;
  const Config config = on_cpu(small_run(folder, 1, 1));
  const Start started = start(3, [&](int rank) {
    Config own = config;
    if (rank == 2) own.train.seed = 77;
    return own;
  });
  CHECK_THAT(started.errors[0], Contains("configuration: rank 2 on " + host_name() +
                                         ": the configuration here is not rank 0's: 'seed = 77'"
                                         " instead of 'seed = "));
  CHECK(started.errors == Errors(3, started.errors[0]));
}

TEST_CASE("run start: data that cannot be opened is told with other obstacles") {
  const ShardFolder folder;
  Config config = on_cpu(small_run(folder, 3, 1));
  config.data.train = folder.file("absent");
  const Start started = start(4, [&](int) { return config; });
  CHECK_THAT(started.errors[0], Contains("configuration: ") && Contains("absent") &&
                                    Contains("4 ranks cannot hold whole replicas of tensor 3"));
  CHECK(started.errors == Errors(4, started.errors[0]));
  config.parallel.tensor = 1;
  CHECK_THAT(start(1, [&](int) { return config; }).errors[0], StartsWith("data: ") && Contains("absent"));
}

TEST_CASE("run start: other shards under the same names on one node are refused") {
  const ShardFolder nodes[2];
  Config config = on_cpu(small_run(nodes[0], 1, 1));
  small_run(nodes[1], 1, 1);
  config.data.train = "corpus";
  bool refused = false;
  const auto run = [&] {
    return errors_by_rank(2, [&](Communicator& world) {
      // A working directory per thread, as if each were on a node with its own disk.
      const bool own = ::unshare(CLONE_FS) == 0 && ::chdir(nodes[world.rank()].path().c_str()) == 0;
      if (world.any_rank(!own)) {
        refused = true;
        return;
      }
      std::vector<std::string> warnings;
      agree_on_run(config, world, warnings);
    });
  };
  CHECK(run() == Errors(2));
  if (refused) {
    WARN("this system gives threads no working directories of their own");
    return;
  }
  Documents documents(60, std::vector<std::int32_t>(40, 7));
  make_shard(nodes[1].file("corpus"), documents, 0, 1, small_vocabulary(50), 98);
  CHECK(run() == Errors(2, "data: rank 1 on " + host_name() +
                               ": the token shards here are not rank 0's, under the same names; copy the same files to "
                               "every node"));
}
