// --fit: what is proposed fits, is the cheapest of what does, and costs what the planner says of it alone.
#include <algorithm>

#include "base/core/error.h"
#include "planning/layout_search/fit.h"
#include "support/catch.h"

using namespace megatron;

namespace {

Config small_run() {
  Config config;
  ModelConfig& model = config.model;
  model.layers = 4;
  model.hidden_size = 128;
  model.attention_heads = 4;
  model.sequence_length = 128;
  model.vocab_size = 512;
  config.data.train = "none";
  config.train.steps = 10;
  config.train.global_batch_size = 16;
  config.train.micro_batch_size = 8;
  config.parallel.data = 2;
  return config;
}

Hardware machine_here() {
  return hardware_here(small_run(), {.flops_per_second = 1e11, .bytes_per_second = 2e10}, 2);
}

const SearchSettings kTwoRanks{.ranks = 2};

double bytes_of(const Config& config) {
  return static_cast<double>(plan_layout(config, machine_here(), kTwoRanks).recorded.most_bytes());
}

}  // namespace

TEST_CASE("fit: a number of bytes with a unit") {
  CHECK(parse_bytes("16GiB") == 16.0 * (1 << 30));
  CHECK(parse_bytes("1.5 MiB") == 1.5 * (1 << 20));
  CHECK(parse_bytes("4096") == 4096);
  for (const char* const wrong : {"", "16GB", "GiB", "-1GiB", "16GiBs", "inf", "0"}) {
    CAPTURE(wrong);
    CHECK_THROWS_WITH(parse_bytes(wrong), Contains("give one such as 16GiB"));
  }
}

TEST_CASE("fit: the cheapest that fits, by the planner's own times and bytes") {
  const Config file = small_run();
  const double whole = bytes_of(file);
  for (const double share : {1.1, 0.7, 0.45}) {
    CAPTURE(share);
    const Fit fit = fit_memory(file, machine_here(), kTwoRanks, share * whole);
    CHECK(static_cast<double>(fit.file.bytes) == whole);
    for (std::size_t i = 0; i < fit.fitting.size(); ++i) {
      const FitChoice& choice = fit.fitting[i];
      CHECK(static_cast<double>(choice.bytes) <= share * whole);
      CHECK(choice.config.optimizer.moments_dtype == "fp32");  // something fits without other numbers
      if (i > 0) CHECK(choice.seconds >= fit.fitting[i - 1].seconds);
    }
    const FitChoice& best = fit.fitting.front();
    const PlannedLayout again = plan_layout(best.config, machine_here(), kTwoRanks);
    CHECK(again.recorded.most_bytes() == best.bytes);
    CHECK(again.time.seconds == Approx(best.seconds));
    // All the rest is the file's.
    Config back = best.config;
    back.train.micro_batch_size = file.train.micro_batch_size;
    back.recompute = file.recompute;
    back.model.head_chunks = file.model.head_chunks;
    back.optimizer = file.optimizer;
    CHECK(back == file);
    for (const FitChoice& alone : fit.one_by_one) CHECK(static_cast<double>(alone.bytes) == bytes_of(alone.config));
  }
}

TEST_CASE("fit: moments in 16 bits if nothing else fits, and nothing at all") {
  Config file = small_run();
  file.train.micro_batch_size = 1;
  file.optimizer.share = "weights";
  file.recompute.mode = "full";
  file.model.head_chunks = 8;
  const double smallest = bytes_of(file);  // in fp32
  const Fit fit = fit_memory(file, machine_here(), kTwoRanks, smallest - 1);
  REQUIRE(!fit.fitting.empty());
  for (const FitChoice& choice : fit.fitting) CHECK(choice.config.optimizer.moments_dtype == "bf16");
  CHECK_THROWS_WITH(fit_memory(file, machine_here(), kTwoRanks, 1e5),
                    Contains("nothing fits into 97.7 KiB per rank") && Contains("the smallest needs"));
}

TEST_CASE("fit: states in files before other numbers, at the price of the disk") {
  Config file = small_run();
  file.train.micro_batch_size = 1;
  double smallest = bytes_of(file);
  for (const FitChoice& each : fit_memory(file, machine_here(), kTwoRanks, 1e12).fitting) {
    smallest = std::min(smallest, static_cast<double>(each.bytes));
  }
  constexpr double kDisk = 1e6;
  const Fit fit = fit_memory(file, machine_here(), kTwoRanks, smallest - 1, kDisk);
  REQUIRE(!fit.fitting.empty());
  for (const FitChoice& choice : fit.fitting) {
    CHECK(choice.config.optimizer.offload == "file");
    CHECK(choice.config.optimizer.moments_dtype == "fp32");
    const PlannedLayout alone = plan_layout(choice.config, machine_here(), kTwoRanks);
    const double written = static_cast<double>(alone.recorded.played.at(0).memory.file) * 2;
    CHECK(written > 0);
    CHECK(choice.seconds == Approx(alone.time.seconds + 2 * written / kDisk));
  }
  CHECK_THAT(describe_fit(fit), Contains("'optimizer.offload=\"file\"'"));
  // Where they fit without, none is tried.
  for (const FitChoice& choice : fit_memory(file, machine_here(), kTwoRanks, smallest, kDisk).fitting) {
    CHECK(choice.config.optimizer.offload == "none");
  }
}

TEST_CASE("fit: the text names the price of each change and the options") {
  const Config file = small_run();
  const std::string text = describe_fit(fit_memory(file, machine_here(), kTwoRanks, 0.45 * bytes_of(file)));
  CHECK_THAT(text, Contains("it does NOT fit") && Contains("cheapest  ") && Contains(" alone saves ") &&
                       Contains(" s a step") && Contains("--set '"));
}

TEST_CASE("fit: a head in chunks, where logits are most of the memory") {
  Config file = small_run();
  file.model.vocab_size = 50257;
  file.train.micro_batch_size = 1;
  file.parallel.data = 0;
  file.train.global_batch_size = 1;  // micro-batches of no other size
  const SearchSettings one_rank{.ranks = 1};
  Config chunked = file;
  chunked.model.head_chunks = 8;
  const auto bytes = [&](const Config& config) {
    return plan_layout(config, machine_here(), one_rank).recorded.most_bytes();
  };
  REQUIRE(bytes(chunked) < bytes(file));
  const Fit fit = fit_memory(file, machine_here(), one_rank, static_cast<double>(bytes(chunked)));
  CHECK(fit.fitting.front().config == chunked);
  CHECK(fit.fitting.front().seconds > fit.file.seconds);
  CHECK_THAT(describe_fit(fit), Contains("model.head_chunks = 8") && Contains("--set 'model.head_chunks=8'"));
  // A file that has them already is compared with one chunk.
  const Fit back = fit_memory(chunked, machine_here(), one_rank, 1e12);
  CHECK(std::any_of(back.fitting.begin(), back.fitting.end(),
                    [&](const FitChoice& each) { return each.config == file; }));
}
