// data.order = "megatron_core" against the samples of megatron-core's own data sets
// (scripts/oracles/megatron_core_oracle.py). MEGATRON_CORE_CASES names another file of cases to compare with.
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/samples/next_token_samples.h"
#include "support/data_support.h"
#include "training/datasets/datasets.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

json cases() {
  const char* other = std::getenv("MEGATRON_CORE_CASES");
  std::ifstream stream(other != nullptr ? other : MEGATRON_GOLDEN_FOLDER "/megatron_core.json");
  return json::parse(stream);
}

json case_named(const std::string& name) {
  std::ifstream stream(MEGATRON_GOLDEN_FOLDER "/megatron_core.json");
  for (json& row : json::parse(stream)) {
    if (row.value("name", "") == name) return row;
  }
  throw std::runtime_error("no golden case: " + name);
}

/// Writes the sets of a case, of tokens that are all different.
class CoreCase {
 public:
  explicit CoreCase(const json& row) {
    config.model.sequence_length = row.at("sequence_length");
    config.train.seed = row.at("seed");
    config.train.steps = row.at("steps");
    config.train.global_batch_size = row.at("batch");
    config.train.evaluate_every = row.at("evaluate_every");
    config.train.evaluate_steps = row.at("evaluate_steps");
    config.data.split = row.at("split");
    config.data.order = "megatron_core";
    config.data.train = blend(row, "train");
    config.data.validation = blend(row, "validation");
    config.data.test = blend(row, "test");
  }

  Config config;

 private:
  Blend blend(const json& row, const std::string& split) {
    Blend result;
    if (!row.contains(split) || !row.at(split).contains("sets")) return result;
    const json& sets = row.at(split).at("sets");
    for (std::size_t i = 0; i < sets.size(); ++i) {
      Documents documents;
      for (const std::size_t length : sets[i]) {
        documents.emplace_back(length);
        for (std::int32_t& token : documents.back()) token = token_++;
      }
      const std::string prefix = folder_.file(split + std::to_string(i));
      make_shard(prefix, documents, 0, 1, small_vocabulary(1 << 20));
      result.parts.push_back({prefix, row.at(split).at("weights")[i]});
    }
    return result;
  }

  ShardFolder folder_;
  std::int32_t token_ = 0;
};

/// Whether the samples that the run takes of a split are those of the case.
bool equal_samples(const SampleSet& set, const json& expected) {
  SampleReader reader(*set.source, *set.order);
  std::vector<std::int32_t> first;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < expected.at("samples").get<std::uint64_t>(); ++i) {
    const std::span<const std::int32_t> tokens = reader.read(i);
    if (i < expected.at("first").size()) first.push_back(tokens[0]);
    for (const std::int32_t token : tokens) sum = 31 * sum + static_cast<std::uint64_t>(token);
  }
  return first == expected.at("first").get<std::vector<std::int32_t>>() &&
         sum == expected.at("sum").get<std::uint64_t>();
}

}  // namespace

TEST_CASE("megatron_core: samples of all splits, alone and blended", "[megatron_core]") {
  int blends = 0, splits = 0;
  for (const json& row : cases()) {
    INFO(row);
    const CoreCase prepared(row);
    const Datasets datasets(prepared.config);
    CHECK(equal_samples(datasets.train(), row.at("train")));
    blends += prepared.config.data.train.parts.size() > 1 ? 1 : 0;
    const std::optional<SampleSet>* const evaluated[] = {&datasets.validation(), &datasets.test()};
    for (std::size_t i = 0; i < 2; ++i) {
      const char* split = i == 0 ? "validation" : "test";
      const bool expected = row.contains(split) && row.at(split).contains("samples");
      REQUIRE(evaluated[i]->has_value() == expected);
      if (!expected) continue;
      CHECK(equal_samples(**evaluated[i], row.at(split)));
      ++splits;
    }
  }
  CHECK(blends > 4);
  CHECK(splits > 12);
}

TEST_CASE("megatron_core: differs from the order of 2022", "[megatron_core]") {
  for (const char* name : {"boundaries that rounding each share would move", "a blend asked for more than in 2022"}) {
    INFO(name);
    const json row = case_named(name);
    CoreCase prepared(row);
    CHECK(equal_samples(Datasets(prepared.config).train(), row.at("train")));
    prepared.config.data.order = "megatron";
    CHECK_FALSE(equal_samples(Datasets(prepared.config).train(), row.at("train")));
  }
}

TEST_CASE("megatron_core: fewer tokens than a sample are repeated", "[megatron_core]") {
  const json row = case_named("nine tokens, sixteen a sample, repeated");
  CoreCase prepared(row);
  CHECK(Datasets(prepared.config).facts().train_samples == 1);
  prepared.config.data.order = "megatron";
  require_error(ErrorKind::data, {"9 tokens", "needs 16"}, [&] { Datasets wrong(prepared.config); });
}
