// The files of a run next to its checkpoints: what a resume does to them, and what they cost while the run is long.
#include <fstream>
#include <string>

#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/trainer_on_rank.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Config run_in(const ShardFolder& folder) {
  Config config = tiny_config();
  config.data.train = make_corpus(folder);
  config.data.validation = config.data.train;
  config.train.steps = 6;
  config.train.evaluate_every = 1;
  config.learning_rate.peak = 1e-3;
  config.checkpoint.every_steps = 1;
  config.run.directory = folder.file("run");
  std::filesystem::create_directories(config.run.directory);
  return config;
}

/// Bytes that this process has read so far; -1 where the system does not count them.
long long bytes_read() {
  std::ifstream counts("/proc/self/io");
  std::string name;
  long long value = 0;
  while (counts >> name >> value) {
    if (name == "rchar:") return value;
  }
  return -1;
}

}  // namespace

TEST_CASE("outputs: saves and evaluations and the end do not reread its metrics") {
  const ShardFolder folder;
  const Config config = run_in(folder);
  const std::string line = "{\"note\":\"" + std::string(1000, 'x') + "\"}\n";
  std::string notes;
  for (int i = 0; i < 20000; ++i) notes += line;
  write_file(config.run.directory + "/metrics.jsonl", notes);
  const long long before = bytes_read();
  const LoopResult result = run_loop(config);
  const long long read = bytes_read() - before;
  CHECK(result.told == std::vector<std::string>{""});
  CHECK(result.metrics.size() == 20000 + 6 + 6);
  if (before < 0) {
    WARN("the system does not count what is read: not tested");
    return;
  }
  // Once where the run begins, and once by this test.
  CHECK(static_cast<double>(read) / static_cast<double>(notes.size()) < 3);
}

TEST_CASE("outputs: lines that a resume cannot read are kept aside, and told", "[fault-90]") {
  const ShardFolder folder;
  Config config = run_in(folder);
  config.train.stop_after = 3;
  const std::size_t before = run_loop(config).metrics.size();
  const std::string metrics = config.run.directory + "/metrics.jsonl", damaged = contents_of(metrics) + "{\n\n}\n";
  write_file(metrics, damaged);
  config.train.stop_after = 0;
  const LoopResult result = run_loop(config);
  CHECK(result.metrics.size() == 2 * before);
  CHECK_THAT(result.log, Contains("warning: 3 lines of " + metrics +
                                  " cannot be read and are left out; the "
                                  "whole file as it was is " +
                                  metrics + ".damaged"));
  CHECK(contents_of(metrics + ".damaged") == damaged);
  CHECK_THAT(contents_of(config.run.directory + "/loss.svg"), Contains(">validation <tspan>"));
}
