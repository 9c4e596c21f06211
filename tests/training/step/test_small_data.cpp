// Splits of small sets: cut by tokens, told in words, and recorded in checkpoints.
#include "data/shards/split.h"
#include "planning/dry_run/split_report.h"
#include "support/catch.h"
#include "support/data_support.h"
#include "training/datasets/datasets.h"
#include "training/step/compatibility.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// A text of 1000 tokens in documents of 60 with a short tail, as preprocessing makes them of one file.
struct OneText {
  ShardFolder folder;
  Config config;

  OneText() {
    Documents documents(16, std::vector<std::int32_t>(60, 7));
    documents.emplace_back(37, 7);
    documents.emplace_back(3, 7);
    make_shard(folder.file("text"), documents);
    config.model.sequence_length = 4;
    config.train.steps = 10;
    config.train.global_batch_size = 3;
    config.train.evaluate_steps = 2;
    config.data.train = folder.file("text");
  }
  std::string many(std::uint64_t documents) {
    make_shard(folder.file("many"), Documents(documents, std::vector<std::int32_t>(5, 7)));
    return folder.file("many");
  }
  SplitReport report() const { return report_splits(config, Datasets(config)); }
};

std::vector<std::uint64_t> tokens_of(const std::vector<SplitPart>& parts) {
  std::vector<std::uint64_t> bounds;
  for (const SplitPart& part : parts) bounds.insert(bounds.end(), {part.first_token, part.first_token + part.tokens});
  return bounds;
}

using Bounds = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("small data: few documents are split by tokens", "[small_data]") {
  OneText text;
  const Datasets datasets(text.config);
  CHECK(tokens_of(datasets.train_parts()) == Bounds{0, 969});
  CHECK(tokens_of(datasets.validation_parts()) == Bounds{969, 999});
  CHECK(tokens_of(datasets.test_parts()) == Bounds{999, 1000});
  CHECK(datasets.train().order->samples() == 242);
  REQUIRE(datasets.validation());
  CHECK(datasets.validation()->order->samples() == 7);
  std::vector<TokenRange> ranges;
  datasets.validation()->order->locate(0, ranges);
  CHECK(ranges == std::vector<TokenRange>{{969, 5}});
  CHECK_FALSE(datasets.test());
}

TEST_CASE("small data: whole documents from 1000 on, or by request", "[small_data]") {
  OneText text;
  text.config.data.train = text.many(kFewDocuments);
  const SplitBounds bounds = split_rounding_parts(kFewDocuments, {969, 30, 1});
  CHECK(tokens_of(Datasets(text.config).train_parts()) == Bounds{0, 5 * bounds[1]});
  CHECK(tokens_of(Datasets(text.config).validation_parts()) == Bounds{5 * bounds[1], 5 * bounds[2]});
  CHECK_FALSE(Datasets(text.config).cut_by_tokens());
  text.config.data.train = text.many(kFewDocuments - 1);
  CHECK(Datasets(text.config).train_parts()[0].cut_by_tokens);

  text.config.data.train = text.folder.file("text");
  text.config.data.split_by = "documents";
  CHECK(tokens_of(Datasets(text.config).train_parts()) == Bounds{0, 997});
  CHECK(Datasets(text.config).validation_parts()[0].first_document == 17);
}

TEST_CASE("small data: Megatron's orders split whole documents", "[small_data]") {
  OneText text;
  text.config.data.order = GENERATE("megatron", "megatron_core");
  const Datasets datasets(text.config);
  CHECK(tokens_of(datasets.train_parts()) == Bounds{0, 997});
  CHECK(order_facts(text.config, datasets).count("split_by") == 0);
}

TEST_CASE("small data: checkpoints record a split by tokens", "[small_data]") {
  OneText text;
  text.config.model.sequence_length = 2;
  const auto facts = [&] { return order_facts(text.config, Datasets(text.config)); };
  const nlohmann::json by_tokens = facts();
  CHECK(by_tokens.at("split_by") == nlohmann::json{"tokens"});
  text.config.data.split_by = "documents";
  const nlohmann::json by_documents = facts();
  CHECK(by_documents.count("split_by") == 0);  // as older checkpoints
  const auto refused = data_order_mismatches(compare_facts(by_documents, by_tokens), true);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].saved == R"("documents", which data.split_by = "documents" keeps,)");
  CHECK(refused[0].current == R"(["tokens"])");
  CHECK(data_order_mismatches(compare_facts(by_tokens, by_documents), true).at(0).current == R"("documents")");
  CHECK(evaluation_facts(Datasets(text.config)).at("validation").at("sets")[0] ==
        "0000000000000063, documents 17 to 18");
  text.config.data.split_by = "auto";
  CHECK(evaluation_facts(Datasets(text.config)).at("validation").at("sets")[0] ==
        "0000000000000063, tokens 969 to 999");
  // Nothing is cut where all is for training: older checkpoints continue.
  text.config.data.split = "1";
  CHECK(facts().count("split_by") == 0);
}

TEST_CASE("small data: each split's share and samples are reported", "[small_data]") {
  OneText text;
  const SplitReport report = text.report();
  CHECK(
      report.lines ==
      std::vector<std::string>{
          "training  969 tokens, 96.9 % of data.train: 242 samples per pass",
          "validation 30 tokens, 3 % of data.train: 7 samples; each evaluation takes the first 6",
          "test      1 token, 0.1 % of data.train: not one sample of 5 tokens; data.split = \"90,5,5\", more text or a "
          "shorter model.sequence_length gives it some"});
  CHECK(report.warnings.empty());
  text.config.model.sequence_length = 40;
  REQUIRE(text.report().warnings.size() == 1);
  CHECK_THAT(text.report().warnings[0],
             Contains("validation 30 tokens, 3 % of data.train: not one sample of 41 tokens") &&
                 Contains("data.split = \"90,10\""));
  text.config.data.split = "90,10";  // the split that is there is no advice
  text.config.model.sequence_length = 200;
  REQUIRE(text.report().warnings.size() == 1);
  CHECK_THAT(text.report().warnings[0], Contains("; more text or a shorter model.sequence_length gives it some"));
  text.config.model.sequence_length = 4;
  text.config.data.test = text.folder.file("text");
  CHECK(text.report().lines[2] == "test      1000 tokens of data.test: 249 samples; each evaluation takes the first 6");
}

TEST_CASE("small data: a split far below its share is named", "[small_data]") {
  OneText text;
  text.config.data.split = "97,3";
  text.config.data.split_by = "documents";
  text.config.model.sequence_length = 2;
  const SplitReport report = text.report();
  REQUIRE(report.warnings.size() == 1);
  CHECK_THAT(report.warnings[0],
             Contains("validation: has 0.3 % of the tokens where data.split = \"97,3\" asks for 3 %") &&
                 Contains("data.split_by = \"tokens\"") && Contains("data.split = \"90,10\""));
  text.config.data.order = "megatron";
  CHECK_THAT(text.report().warnings.at(0), Contains("asks for 3 %") && !Contains("split_by"));
}

TEST_CASE("small data: an evaluation takes all samples however they fill batches", "[small_data]") {
  OneText text;
  text.config.data.split = "97,3";
  for (const std::int64_t batch : {4, 6, 7, 14, 16}) {
    text.config.train.global_batch_size = batch;
    const SplitReport report = text.report();
    CHECK(report.lines[1] == "validation 30 tokens, 3 % of data.train: 7 samples; each evaluation takes all of them");
    CHECK(report.lines[2] == "test      none, by data.split = \"97,3\"");
    CHECK(report.warnings.empty());
  }
}
