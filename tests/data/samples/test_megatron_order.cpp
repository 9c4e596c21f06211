// Megatron-LM's sample order: every element of its three indices, against numpy
// (scripts/oracles/megatron_order_oracle.py).
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "data/samples/megatron_order.h"
#include "data/samples/numpy_random.h"
#include "data/shards/split.h"
#include "support/data_support.h"
#include "support/memory_limit.h"
#include "support/token_batches.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;
using Numbers = std::vector<std::uint64_t>;

namespace {

const json& golden_order() {
  static const json file = [] {
    std::ifstream stream(MEGATRON_GOLDEN_FOLDER "/megatron_order.json");
    return json::parse(stream);
  }();
  return file;
}

Numbers starts_of(const Numbers& lengths) {
  Numbers starts(lengths.size() + 1);
  std::partial_sum(lengths.begin(), lengths.end(), starts.begin() + 1);
  return starts;
}

/// Token i has id i.
class Counting final : public TokenSource {
 public:
  explicit Counting(std::uint64_t tokens) : tokens_(tokens) {}
  std::uint64_t tokens() const override { return tokens_; }
  void read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) override {
    REQUIRE((count > 0 && first + count <= tokens_));
    std::iota(ids, ids + count, static_cast<std::int32_t>(first));
  }

 private:
  std::uint64_t tokens_;
};

Numbers document_index(const MegatronOrder& order) {
  Numbers all;
  for (std::uint64_t i = 0; i < order.document_entries(); ++i) all.push_back(order.document_index(i));
  return all;
}

Numbers sample_index(const MegatronOrder& order) {
  Numbers all;
  for (std::uint64_t k = 0; k <= order.samples(); ++k) {
    const auto [position, offset] = order.sample_index(k);
    all.insert(all.end(), {position, offset});
  }
  return all;
}

Numbers shuffle_index(const MegatronOrder& order) {
  Numbers all;
  for (std::uint64_t i = 0; i < order.samples(); ++i) all.push_back(order.shuffle_index(i));
  return all;
}

std::uint64_t checksum(const Numbers& values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0},
                         [](std::uint64_t sum, std::uint64_t value) { return 31 * sum + value; });
}

}  // namespace

TEST_CASE("megatron: numpy's draws, permutations and half-even splits", "[megatron]") {
  for (const json& row : golden_order().at("draws")) {
    NumpyRandom random(row.at("seed").get<std::uint32_t>());
    for (std::size_t i = 0; i < row.at("largest").size(); ++i) {
      const auto largest = row.at("largest")[i].get<std::uint64_t>();
      INFO("seed " << row.at("seed") << ", up to " << largest);
      for (const json& value : row.at("values")[i]) CHECK(random.up_to(largest) == value.get<std::uint64_t>());
    }
  }
  for (const json& row : golden_order().at("permutations")) {
    Numbers numbers(row.at("of").size());
    std::iota(numbers.begin(), numbers.end(), 0);
    NumpyRandom(row.at("seed").get<std::uint32_t>()).shuffle(std::span(numbers));
    CHECK(numbers == row.at("of").get<Numbers>());
  }
  // Known by heart, whatever the file says.
  Numbers ten(10);
  std::iota(ten.begin(), ten.end(), 0);
  NumpyRandom(42).shuffle(std::span(ten));
  CHECK(ten == Numbers{8, 1, 5, 0, 7, 2, 9, 4, 3, 6});
  std::iota(ten.begin(), ten.end(), 0);
  NumpyRandom(0).shuffle(std::span(ten));
  CHECK(ten == Numbers{2, 8, 4, 9, 1, 6, 7, 3, 0, 5});
  for (const json& row : golden_order().at("splits")) {
    INFO(row);
    auto shares = json::parse("[" + row.at("split").get<std::string>() + "]").get<std::vector<double>>();
    shares.resize(3);
    const auto bounds = split_rounding_parts(row.at("documents"), {shares[0], shares[1], shares[2]});
    CHECK(Numbers(bounds.begin(), bounds.end()) == row.at("bounds").get<Numbers>());
  }
}

TEST_CASE("megatron: the three indices and the samples' tokens on odd corpora", "[megatron]") {
  int separate = 0, repeated = 0, by_sums = 0;
  for (const json& row : golden_order().at("orders")) {
    INFO(row.at("name"));
    const Numbers starts = starts_of(row.at("lengths"));
    const auto s = row.at("sequence_length").get<std::int64_t>();
    const MegatronOrder order(starts, row.at("first"), row.at("end"), s, row.at("seed"), row.at("wanted"));
    REQUIRE(order.epochs() == row.at("epochs").get<std::uint64_t>());
    REQUIRE(order.samples() == row.at("samples").get<std::uint64_t>());
    CHECK(order.separate_last_epoch() == row.at("separate").get<bool>());
    separate += order.separate_last_epoch() ? 1 : 0;
    repeated += order.epochs() > 1 ? 1 : 0;
    const Numbers documents = document_index(order), places = sample_index(order), shuffle = shuffle_index(order);
    if (row.contains("sums")) {
      ++by_sums;
      CHECK(checksum(documents) == row["sums"].at("documents").get<std::uint64_t>());
      CHECK(checksum(places) == row["sums"].at("places").get<std::uint64_t>());
      CHECK(checksum(shuffle) == row["sums"].at("shuffle").get<std::uint64_t>());
      continue;
    }
    CHECK(documents == row.at("documents").get<Numbers>());
    CHECK(places == row.at("places").get<Numbers>());
    CHECK(shuffle == row.at("shuffle").get<Numbers>());
    Counting source(starts.back());
    SampleReader reader(source, order);
    std::uint64_t sample = 0;
    for (const json& tokens : row.at("tokens")) {
      const auto read = reader.read(sample++);
      CHECK(std::vector<std::int32_t>(read.begin(), read.end()) == tokens.get<std::vector<std::int32_t>>());
    }
  }
  CHECK((separate > 10 && repeated > separate + 10 && by_sums == 2));
}

TEST_CASE("megatron: sample indices by hand", "[megatron]") {
  // One document cannot be shuffled: five tokens, two passes, seven samples of one token and its successor.
  const Numbers five = {0, 5};
  const MegatronOrder order(five, 0, 1, 1, 1, 7);
  CHECK(order.epochs() == 2);
  CHECK(order.samples() == 9);
  CHECK(sample_index(order) == Numbers{0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 1, 0, 1, 1, 1, 2, 1, 3, 1, 4});
  // Lengths 5, 3, 4 in whatever order the seed gives; found here in order 0, 1, 2: tokens 0 to 4 and 4 to 8.
  const Numbers starts = {0, 5, 8, 12};
  bool found = false;
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const MegatronOrder three(starts, 0, 3, 4, seed, 2);
    CHECK(three.samples() == 2);
    if (document_index(three) != Numbers{0, 1, 2}) continue;
    found = true;
    CHECK(sample_index(three) == Numbers{0, 0, 0, 4, 2, 0});
    std::vector<TokenRange> ranges;
    three.locate(three.shuffle_index(0) == 1 ? 0 : 1, ranges);
    CHECK(ranges == std::vector<TokenRange>{{4, 1}, {5, 3}, {8, 1}});
  }
  CHECK(found);
}

TEST_CASE("megatron: a pass sees each token once in an order by sample count", "[megatron]") {
  Numbers lengths(500);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = i * i % 37;
  const Numbers starts = starts_of(lengths);
  const std::int64_t s = 25;
  const std::uint64_t pass = (starts.back() - 1) / 25;
  const MegatronOrder order(starts, 0, 500, s, 3, pass);
  REQUIRE(order.samples() == pass);
  std::vector<int> seen(starts.back());
  std::vector<TokenRange> ranges;
  for (std::uint64_t i = 0; i < pass; ++i) {
    order.locate(i, ranges);
    std::uint64_t tokens = 0;
    for (const TokenRange& range : ranges) {
      REQUIRE(range.count > 0);
      tokens += range.count;
      for (std::uint64_t t = 0; t < range.count; ++t) ++seen[range.first + t];
    }
    REQUIRE(tokens == 26);
  }
  CHECK(std::accumulate(seen.begin(), seen.end(), 0) == static_cast<int>(26 * pass));
  CHECK(*std::max_element(seen.begin(), seen.end()) == 2);  // the token that two neighbours share
  CHECK(std::count(seen.begin(), seen.end(), 0) == static_cast<int>(starts.back() - 25 * pass - 1));
  const MegatronOrder longer(starts, 0, 500, s, 3, 2 * pass);
  CHECK(shuffle_index(longer) != shuffle_index(order));
  CHECK(document_index(longer) != document_index(order));
}

TEST_CASE("megatron: beyond 2^32 tokens and in large strides", "[megatron]") {
  // Four documents of 2^40 tokens: places, offsets and ranges are far beyond 32 bits.
  const std::uint64_t large = std::uint64_t{1} << 40;
  const Numbers starts = {0, large, 2 * large + 1, 3 * large, 4 * large};
  const std::int64_t s = 1 << 24;
  const MegatronOrder order(starts, 0, 4, s, 11, 300000);
  CHECK(order.epochs() == 2);  // (2^42 - 1) / 2^24 = 262143 samples per pass
  CHECK(order.samples() == 524287);
  CHECK(order.separate_last_epoch());
  std::vector<TokenRange> ranges;
  for (std::uint64_t i = 0; i < order.samples(); i += 997) {
    const std::uint64_t k = order.shuffle_index(i);
    CHECK((k < 262143) == (i < 262143));
    unsigned __int128 token = 0;  // by walking
    const auto place = order.sample_index(k);
    for (std::uint64_t p = 0; p < place.position; ++p) {
      const std::uint64_t document = order.document_index(p);
      token += starts[document + 1] - starts[document];
    }
    CHECK(token + place.offset == static_cast<unsigned __int128>(k) * (1 << 24));
    order.locate(i, ranges);
    std::uint64_t tokens = 0;
    for (const TokenRange& range : ranges) tokens += range.count;
    CHECK(tokens == (1 << 24) + 1);
  }
}

TEST_CASE("megatron: numbers below 2^32 in four bytes, others in eight", "[megatron]") {
  const std::uint64_t border = std::uint64_t{1} << 32;
  CHECK(CompactIndex::bytes_each(border) == 4);
  CHECK(CompactIndex::bytes_each(border + 1) == 8);
  const auto shuffled = [](std::uint64_t end) {
    NumpyRandom random(1);
    CompactIndex index(20, end);
    index.append_shuffled(end - 10, end, 2, random);
    return index;
  };
  const CompactIndex expected = shuffled(10);
  REQUIRE(expected.size() == 20);
  for (const std::uint64_t end : {border, border + 1, std::uint64_t{1} << 40}) {
    const CompactIndex index = shuffled(end);
    REQUIRE(index.size() == 20);
    for (std::uint64_t i = 0; i < 20; ++i) CHECK(index[i] == expected[i] + end - 10);
  }
}

TEST_CASE("megatron: an index for which there is too little memory", "[megatron]") {
#ifdef MEGATRON_TEST_SANITIZED
  std::cout << "SKIPPED: too little memory; a sanitizer ends the program where memory does\n";
#else
  const Numbers starts = {0, std::uint64_t{1} << 40};
  const MegatronOrder order(starts, 0, 1, 32, 1, 1000);
  const MemoryLimit limit(std::uint64_t{64} << 20);
  for (int round = 0; round < 2; ++round) {
    require_error(ErrorKind::configuration,
                  {"274877906940 bytes", "34359738367 samples in 1 passes", "data.order_samples", "\"epoch\""},
                  [&] { order.shuffle_index(0); });
  }
#endif
}

TEST_CASE("megatron: what cannot be ordered, and asking beyond the end", "[megatron]") {
  const Numbers empty = {0, 0, 0}, some = {0, 3, 9};
  require_error(ErrorKind::data, {"documents 0 to 2 have no tokens"}, [&] { MegatronOrder(empty, 0, 2, 4, 1, 1); });
  require_error(ErrorKind::data, {"documents 1 to 1 have no tokens"}, [&] { MegatronOrder(some, 1, 1, 4, 1, 1); });
  require_error(ErrorKind::data, {"2^36", "9000000000000000000", "order = \"epoch\""},
                [&] { MegatronOrder(some, 0, 2, 4, 1, 9'000'000'000'000'000'000); });
  const MegatronOrder order(some, 0, 2, 4, 1, 3);
  REQUIRE(order.samples() == 4);
  std::vector<TokenRange> ranges;
  order.locate(3, ranges);
  require_error(ErrorKind::configuration, {"sample 4", "has 4"}, [&] { order.locate(4, ranges); });
}

TEST_CASE("megatron: batches and samples are read from shards without allocation", "[megatron]") {
  ShardFolder folder;
  const Documents documents = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 11}, {12}, {13, 14}};
  make_shard(folder.file("p"), {documents[0], documents[1]}, 0, 2);
  make_shard(folder.file("p"), {documents[2], documents[3], documents[4]}, 1, 2);
  TokenDataset dataset(folder.file("p"));
  const MegatronOrder order(dataset.document_starts(), 0, 5, 4, 9, 8);
  std::vector<TokenRange> ranges;
  ranges.reserve(5);
  const TokenRange* room = ranges.data();
  std::ostringstream out;
  NextTokenSamples printed(dataset, order);
  print_samples(printed, 0, 8, {}, out);
  std::istringstream lines(out.str());
  const auto plan = [](std::int64_t step) {
    return GlobalBatch{static_cast<std::uint64_t>(2 * step), step < 4 ? 2 : 0};
  };
  TokenBatches batches(dataset, order, {2, 2, 0, 1}, plan, 0);
  const StepBatch* batch = nullptr;
  for (std::uint64_t sample = 0; sample < 8; ++sample) {
    // Token by token through the document index, as its definition says.
    const auto [position, offset] = order.sample_index(order.shuffle_index(sample));
    std::vector<std::int32_t> expected;
    for (std::uint64_t p = position, o = offset; expected.size() < 5; ++p, o = 0) {
      const auto& document = documents[order.document_index(p)];
      expected.insert(expected.end(), document.begin() + static_cast<std::ptrdiff_t>(o), document.end());
    }
    expected.resize(5);
    std::string line;
    REQUIRE(std::getline(lines, line));
    CHECK(json::parse(line)["tokens"].get<std::vector<std::int32_t>>() == expected);
    if (sample % 2 == 0) batch = &batches.next();
    for (std::uint64_t i = 0; i < 4; ++i) {
      CHECK(batch->micro_batches[0].main.tokens.as<std::int32_t>()[2 * i + sample % 2] == expected[i]);
      CHECK(batch->micro_batches[0].main.targets.as<std::int32_t>()[2 * i + sample % 2] == expected[i + 1]);
    }
    order.locate(sample, ranges);
    CHECK(ranges.data() == room);
  }
}
