// Split, order and micro-batches: against oracles, and whatever the number of data ranks.
#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/core/philox.h"
#include "data/samples/sample_order.h"
#include "data/shards/split.h"
#include "support/data_support.h"
#include "support/token_batches.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Token i has id i modulo 2^31; counts how often each token is read, and can fail.
class CountingSource final : public TokenSource {
 public:
  explicit CountingSource(std::uint64_t tokens) : tokens_(tokens) {}
  std::uint64_t tokens() const override { return tokens_; }
  void read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) override {
    const std::lock_guard lock(mutex_);
    verify(++reads_ <= most_reads_, ErrorKind::data, "the disk is gone");
    internal_check(first + count <= tokens_, "read beyond the end");
    ++starts_[first];
    for (std::uint64_t i = 0; i < count; ++i) ids[i] = static_cast<std::int32_t>((first + i) & 0x7FFFFFFF);
  }
  void fail_after(int reads) { most_reads_ = reads; }
  int reads() const {
    const std::lock_guard lock(mutex_);
    return reads_;
  }
  const std::map<std::uint64_t, int>& starts() const { return starts_; }

 private:
  std::uint64_t tokens_;
  mutable std::mutex mutex_;
  int reads_ = 0, most_reads_ = 1 << 30;
  std::map<std::uint64_t, int> starts_;
};

BatchPlan constant_plan(std::int64_t samples, std::int64_t steps) {
  return [=](std::int64_t step) {
    return GlobalBatch{static_cast<std::uint64_t>(step * samples), step < steps ? samples : 0};
  };
}

}  // namespace

TEST_CASE("split: Megatron-LM's documents of 2022", "[split]") {
  CHECK(split_rounding_parts(1000, {969, 30, 1}) == SplitBounds{0, 969, 999, 1000});
  CHECK(split_rounding_parts(7, {98, 2, 0}) == SplitBounds{0, 7, 7, 7});
  CHECK(split_rounding_parts(10, {1, 0, 0}) == SplitBounds{0, 10, 10, 10});
  CHECK(split_rounding_parts(18, {969, 30, 1}) == SplitBounds{0, 17, 18, 18});
  CHECK(split_rounding_parts(3, {1, 1, 0}) == SplitBounds{0, 1, 3, 3});  // 2 + 2, one too many taken from all
  CHECK(split_rounding_parts(3, {0, 1, 1}) == SplitBounds{0, 0, 1, 3});  // and never below zero
  CHECK(split_rounding_parts(1, {1, 1, 1}) == SplitBounds{0, 1, 1, 1});
  CHECK(split_rounding_parts(0, {969, 30, 1}) == SplitBounds{0, 0, 0, 0});
  CHECK(split_rounding_parts(5000000000, {0.5, 0.25, 0.25}) == SplitBounds{0, 2500000000, 3750000000, 5000000000});
}

TEST_CASE("split: cumulative shares, each boundary rounded once", "[split]") {
  CHECK(split_rounding_boundaries(1000, {969, 30, 1}) == SplitBounds{0, 969, 999, 1000});
  CHECK(split_rounding_boundaries(3, {1, 1, 0}) == SplitBounds{0, 2, 3, 3});  // 1.5 to even
  CHECK(split_rounding_boundaries(5, {1, 1, 0}) == SplitBounds{0, 2, 5, 5});  // 2.5 to even
  CHECK(split_rounding_boundaries(3, {1, 1, 1}) == SplitBounds{0, 1, 2, 3});
  CHECK(split_rounding_boundaries(0, {969, 30, 1}) == SplitBounds{0, 0, 0, 0});
  CHECK(split_rounding_boundaries(1115394, {969, 30, 1}) == SplitBounds{0, 1080817, 1114279, 1115394});
  const std::uint64_t large = std::uint64_t{1} << 62;
  CHECK(split_rounding_boundaries(large, {1, 0, 0}) == SplitBounds{0, large, large, large});
}

TEST_CASE("split: every element is in one part", "[split]") {
  for (std::uint64_t n = 0; n < 300; ++n) {
    for (const SplitBounds& b : {split_rounding_parts(n, {7, 2.5, 1}), split_rounding_boundaries(n, {7, 2.5, 1})}) {
      CHECK((b[0] == 0 && b[0] <= b[1] && b[1] <= b[2] && b[2] <= b[3] && b[3] == n));
    }
  }
}

TEST_CASE("order: a permutation of every size, other for every key", "[order]") {
  for (const std::uint64_t n : {1ull, 2ull, 3ull, 4ull, 5ull, 16ull, 17ull, 63ull, 64ull, 65ull, 1000ull, 4097ull}) {
    std::vector<bool> seen(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t to = permute(i, n, 42);
      REQUIRE(to < n);
      REQUIRE_FALSE(seen[to]);
      seen[to] = true;
    }
  }
  // Uniform enough: where item 0 goes, over many keys, and how many items stay (1 on average).
  const std::uint64_t n = 10;
  std::vector<int> places(n);
  int stayed = 0;
  for (std::uint64_t key = 0; key < 5000; ++key) {
    ++places[permute(0, n, mix64(key))];
    for (std::uint64_t i = 0; i < n; ++i) stayed += permute(i, n, mix64(key)) == i ? 1 : 0;
  }
  for (const int count : places) CHECK((count > 400 && count < 600));  // 500 expected, standard deviation 21
  CHECK((stayed > 4600 && stayed < 5400));
}

TEST_CASE("order: an epoch visits all and does not depend on the run's length", "[order]") {
  const std::int64_t s = 8;
  const EpochOrder order(1000, 8 * 50 + 5, s, 7, EpochOrder::Kind::shuffled);
  CHECK(order.samples() == 50);
  std::vector<std::uint64_t> run;
  for (std::uint64_t i = 0; i < 150; ++i) run.push_back(order.first_token_of(i));
  std::set<std::vector<std::uint64_t>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::uint64_t> visited(run.begin() + 50 * epoch, run.begin() + 50 * (epoch + 1));
    epochs.insert(visited);
    std::sort(visited.begin(), visited.end());
    for (std::uint64_t i = 0; i < 50; ++i) CHECK(visited[i] == 1000 + 8 * i);
  }
  CHECK(epochs.size() == 3);
  const EpochOrder other(1000, 8 * 50 + 5, s, 8, EpochOrder::Kind::shuffled);
  int equal = 0;
  for (std::uint64_t i = 0; i < 50; ++i) equal += other.first_token_of(i) == run[i] ? 1 : 0;
  CHECK(equal < 10);
  // Nothing of the length of the run goes in, so asking in any order gives the same.
  CHECK(order.first_token_of(149) == run[149]);
  CHECK(order.first_token_of(0) == run[0]);
  const EpochOrder straight(1000, 8 * 50 + 5, s, 7, EpochOrder::Kind::sequential);
  CHECK(straight.first_token_of(0) == 1000);
  CHECK(straight.first_token_of(49) == 1392);
  CHECK(straight.first_token_of(50) == 1000);
  // The order is part of what a resumed run relies on: these numbers must never change.
  CHECK(std::vector<std::uint64_t>(run.begin(), run.begin() + 4) == std::vector<std::uint64_t>{1360, 1272, 1264, 1064});
}

TEST_CASE("order: too few tokens, and just enough", "[order]") {
  for (const std::uint64_t tokens : {0ull, 1ull, 8ull}) {
    require_error(ErrorKind::data, {std::to_string(tokens) + " tokens", "8 + 1"},
                  [&] { EpochOrder(0, tokens, 8, 1, EpochOrder::Kind::shuffled); });
  }
  const EpochOrder one(0, 9, 8, 1, EpochOrder::Kind::shuffled);
  CHECK(one.samples() == 1);
  CHECK(one.first_token_of(12345) == 0);
}

TEST_CASE("order: beyond 2^32 tokens and samples, against 128-bit arithmetic", "[order]") {
  const std::uint64_t first = 1ull << 41, tokens = (1ull << 45) + 12345;
  const std::int64_t s = 1024;
  const EpochOrder order(first, tokens, s, 99, EpochOrder::Kind::shuffled);
  CHECK(order.samples() == (tokens - 1) / 1024);
  std::set<std::uint64_t> seen;
  bool large = false;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const std::uint64_t sample = i * 0x3FFFFFFFFull;  // through many epochs
    const std::uint64_t token = order.first_token_of(sample);
    CHECK((token >= first && token + 1024 < first + tokens && (token - first) % 1024 == 0));
    seen.insert(token);
    large = large || token - first > 1ull << 44;
  }
  CHECK(large);
  CHECK(seen.size() > 1990);
  const EpochOrder straight(first, tokens, s, 99, EpochOrder::Kind::sequential);
  const std::uint64_t last = straight.samples() - 1;
  CHECK(straight.first_token_of(last) ==
        static_cast<std::uint64_t>(static_cast<unsigned __int128>(last) * 1024 + first));
}

TEST_CASE("batches: the data ranks' parts make the global batch", "[batches]") {
  const std::int64_t s = 6, b = 2, global = 16, steps = 5;
  const EpochOrder order(0, 6 * 100 + 1, s, 3, EpochOrder::Kind::shuffled);
  for (const int d : {1, 2, 4}) {
    CountingSource source(601);
    std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t> found;  // (step, place in the batch) to first token
    for (int rank = 0; rank < d; ++rank) {
      TokenBatches batches(source, order, {b, global, rank, d}, constant_plan(global, steps), 0);
      for (std::int64_t step = 0; step < steps; ++step) {
        const StepBatch& batch = batches.next();
        CHECK(batch.step == step);
        REQUIRE(batch.micro_batches.size() == static_cast<std::size_t>(global / (b * d)));
        for (std::size_t k = 0; k < batch.micro_batches.size(); ++k) {
          const MicroBatch& micro = batch.micro_batches[k];
          CHECK(micro.first_sample == static_cast<std::int64_t>(k) * b * d + rank * b);
          REQUIRE(micro.main.tokens.shape() == Shape{s, b});
          const auto* tokens = micro.main.tokens.as<std::int32_t>();
          const auto* targets = micro.main.targets.as<std::int32_t>();
          for (std::int64_t j = 0; j < b; ++j) {
            for (std::int64_t i = 0; i < s; ++i) {
              REQUIRE(tokens[i * b + j] == tokens[j] + i);  // the source counts up
              REQUIRE(targets[i * b + j] == tokens[j] + i + 1);
            }
            found[{step, micro.first_sample + j}] = static_cast<std::uint64_t>(tokens[j]);
          }
        }
      }
      require_error(ErrorKind::internal, {"after the last step"}, [&] { batches.next(); });
    }
    REQUIRE(found.size() == static_cast<std::size_t>(global * steps));
    for (const auto& [place, token] : found) {
      CHECK(token == order.first_token_of(static_cast<std::uint64_t>(place.first * global + place.second)));
    }
    CHECK(source.reads() == global * steps);
    for (const auto& [token, times] : source.starts()) CHECK(times == 1);  // 80 of 100 samples of one epoch
  }
}

TEST_CASE("batches: a batch that grows, started in the middle", "[batches]") {
  const EpochOrder order(0, 1001, 10, 3, EpochOrder::Kind::sequential);
  const BatchPlan plan = [](std::int64_t step) {
    return step < 2   ? GlobalBatch{static_cast<std::uint64_t>(2 * step), 2}
           : step < 4 ? GlobalBatch{static_cast<std::uint64_t>(4 + 6 * (step - 2)), 6}
                      : GlobalBatch{};
  };
  CountingSource source(1001);
  TokenBatches batches(source, order, {2, 6, 0, 1}, plan, 1);
  CHECK(batches.next().micro_batches.size() == 1);
  const StepBatch& batch = batches.next();
  CHECK(batch.step == 2);
  CHECK(batch.samples.first_sample == 4);
  REQUIRE(batch.micro_batches.size() == 3);
  CHECK(batch.micro_batches[2].main.tokens.as<std::int32_t>()[0] == 80);
}

TEST_CASE("batches: sequences that grow are the beginnings of the samples", "[batches]") {
  const EpochOrder order(0, 1001, 10, 3, EpochOrder::Kind::shuffled);
  const BatchPlan plan = [](std::int64_t step) {
    return GlobalBatch{static_cast<std::uint64_t>(4 * step), step < 4 ? 4 : 0,
                       step == 0   ? 3
                       : step == 1 ? 7
                                   : 10 * (step % 2)};
  };
  CountingSource source(1001);
  TokenBatches batches(source, order, {2, 4, 0, 1}, plan, 0);
  for (const std::int64_t s : {3, 7, 10, 10}) {  // 10 also where nothing is said
    const StepBatch& batch = batches.next();
    REQUIRE(batch.micro_batches.size() == 2);
    for (const MicroBatch& micro : batch.micro_batches) {
      REQUIRE(micro.main.tokens.shape() == Shape{s, 2});
      REQUIRE(micro.main.targets.shape() == Shape{s, 2});
      for (std::int64_t j = 0; j < 2; ++j) {
        const auto sample = batch.samples.first_sample + static_cast<std::uint64_t>(micro.first_sample + j);
        const auto first = static_cast<std::int32_t>(order.first_token_of(sample));
        for (std::int32_t i = 0; i < s; ++i) {
          CHECK(micro.main.tokens.as<std::int32_t>()[i * 2 + j] == first + i);
          CHECK(micro.main.targets.as<std::int32_t>()[i * 2 + j] == first + i + 1);
        }
      }
    }
  }
}

TEST_CASE("batches: one step is read ahead and the one handed out stays", "[batches]") {
  CountingSource source(100001);
  const EpochOrder order(0, 100001, 10, 3, EpochOrder::Kind::sequential);
  TokenBatches batches(source, order, {4, 4, 0, 1}, constant_plan(4, 1000), 0);
  for (int step = 0; step < 20; ++step) {
    const StepBatch& batch = batches.next();
    while (source.reads() < 4 * (step + 2)) std::this_thread::yield();  // the next step is read meanwhile
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    CHECK(source.reads() == 4 * (step + 2));
    CHECK(batch.micro_batches[0].main.tokens.as<std::int32_t>()[0] == 40 * step);
  }
}

TEST_CASE("batches: an error while reading reaches next() after the good steps", "[batches]") {
  const EpochOrder order(0, 1001, 10, 3, EpochOrder::Kind::shuffled);
  CountingSource source(1001);
  source.fail_after(9);
  TokenBatches batches(source, order, {2, 4, 0, 1}, constant_plan(4, 50), 0);
  batches.next();
  batches.next();
  for (int again = 0; again < 2; ++again) {
    require_error(ErrorKind::data, {"the disk is gone"}, [&] { batches.next(); });
  }
}

TEST_CASE("batches: can be dropped at any moment", "[batches]") {
  const EpochOrder order(0, 100001, 1000, 3, EpochOrder::Kind::shuffled);
  CountingSource source(100001);
  for (int i = 0; i < 50; ++i) {
    TokenBatches batches(source, order, {2, 64, 0, 1}, constant_plan(64, 1000), 0);
    if (i % 2 == 0) batches.next();
  }
}

TEST_CASE("print_samples: JSON lines in the order of training", "[batches]") {
  const EpochOrder order(0, 101, 5, 3, EpochOrder::Kind::shuffled);
  CountingSource source(101);
  std::ostringstream out;
  const DecodeTokens decode = [](std::span<const std::int32_t> tokens) { return fmt::format("from {}", tokens[0]); };
  NextTokenSamples printed(source, order);
  print_samples(printed, 18, 4, decode, out);
  std::istringstream lines(out.str());
  std::string line;
  for (std::uint64_t sample = 18; sample < 22; ++sample) {
    REQUIRE(std::getline(lines, line));
    const auto printed_line = nlohmann::json::parse(line);
    CHECK(printed_line["sample"] == sample);
    REQUIRE(printed_line["tokens"].size() == 6);
    for (std::uint64_t i = 0; i < 6; ++i) CHECK(printed_line["tokens"][i] == order.first_token_of(sample) + i);
    CHECK(printed_line["text"] == fmt::format("from {}", order.first_token_of(sample)));
  }
  CHECK_FALSE(std::getline(lines, line));
}
