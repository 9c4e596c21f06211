// T5's buckets of distances against the table that scripts/golden/make_distance_golden.py wrote, and their runs.
#include <cstdint>
#include <fstream>
#include <vector>

#include "base/core/distance_buckets.h"
#include "base/core/error.h"
#include "support/catch.h"

using namespace megatron;

namespace {

struct GoldenRule {
  DistanceBuckets rule;
  std::vector<std::int64_t> buckets;  // for distances -1500 to 1500
};

constexpr std::int64_t kFarthest = 1500;

std::vector<GoldenRule> golden_rules() {
  std::ifstream in(MEGATRON_GOLDEN_FOLDER "/distance_buckets.txt");
  REQUIRE(in);
  std::vector<GoldenRule> rules;
  GoldenRule golden;
  int runs = 0;
  while (in >> golden.rule.bidirectional >> golden.rule.buckets >> golden.rule.max_distance >> runs) {
    golden.buckets.clear();
    std::int64_t bucket = 0;
    for (int i = 0; i < runs; ++i) {
      std::int64_t first = 0;
      in >> first;
      while (-kFarthest + static_cast<std::int64_t>(golden.buckets.size()) < first) golden.buckets.push_back(bucket);
      in >> bucket;
    }
    REQUIRE(in);
    golden.buckets.resize(2 * kFarthest + 1, bucket);
    rules.push_back(golden);
  }
  return rules;
}

}  // namespace

TEST_CASE("distances fall into the buckets that transformers has for them") {
  const std::vector<GoldenRule> rules = golden_rules();
  REQUIRE(rules.size() == 20);
  for (const GoldenRule& golden : rules) {
    CAPTURE(golden.rule.bidirectional, golden.rule.buckets, golden.rule.max_distance);
    REQUIRE(golden.rule.valid());
    std::vector<std::int64_t> buckets;
    for (std::int64_t distance = -kFarthest; distance <= kFarthest; ++distance) {
      buckets.push_back(golden.rule.bucket(distance));
    }
    CHECK(buckets == golden.buckets);
  }
}

TEST_CASE("distance runs: cover any interval once in order each in its bucket") {
  for (const GoldenRule& golden : golden_rules()) {
    CAPTURE(golden.rule.bidirectional, golden.rule.buckets, golden.rule.max_distance);
    const DistanceRuns runs(golden.rule);
    const auto check = [&](std::int64_t low, std::int64_t high) {
      std::vector<std::int64_t> found, expected;
      std::int64_t next = low;
      runs.each(low, high, [&](std::int64_t from, std::int64_t to, std::int32_t bucket) {
        CHECK(from == next);
        CHECK(from < to);
        next = to;
        found.insert(found.end(), static_cast<std::size_t>(to - from), bucket);
      });
      for (std::int64_t distance = low; distance < high; ++distance) expected.push_back(golden.rule.bucket(distance));
      CHECK(found == expected);
    };
    check(-kFarthest, kFarthest);
    check(-100'000, 100'000);
    for (const std::int64_t low : {-129, -128, -8, -1, 0, 1, 7, 127, 1400}) {
      for (const std::int64_t length : {0, 1, 2, 9, 300}) check(low, low + length);
    }
    for (const DistanceRuns::Run* run = runs.begin() + 1; run < runs.end(); ++run) CHECK(run[-1].bucket != run->bucket);
  }
}

TEST_CASE("numbers of buckets and distances that make no rule") {
  const auto valid = [](bool bidirectional, std::int64_t buckets, std::int64_t max_distance) {
    return DistanceBuckets{bidirectional, buckets, max_distance}.valid();
  };
  CHECK(DistanceBuckets{}.valid());
  CHECK(valid(true, 4, 2));
  CHECK_FALSE(valid(true, 4, 1));
  CHECK_FALSE(valid(true, 3, 128));
  CHECK(valid(false, 2, 2));
  CHECK_FALSE(valid(false, 1, 128));
  CHECK_FALSE(valid(true, 0, 128));
  CHECK_FALSE(valid(false, -2, 128));
  CHECK(valid(false, 32, 17));
  CHECK_FALSE(valid(false, 32, 16));
  CHECK(valid(false, DistanceBuckets::kMostBuckets, DistanceBuckets::kMostDistance));
  CHECK_FALSE(valid(false, DistanceBuckets::kMostBuckets + 1, DistanceBuckets::kMostDistance));
  CHECK_FALSE(valid(false, 32, DistanceBuckets::kMostDistance + 1));
  CHECK_THROWS_AS(DistanceRuns(DistanceBuckets{true, 32, 8}), Error);
}
