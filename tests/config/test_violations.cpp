// Rules between keys: layouts that do not divide, choices that exclude each other.
#include "config/parse/parse.h"
#include "config/rules/rules.h"
#include "config/schema/print.h"
#include "config/schema/schema.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("all violations come at once, and a refused configuration is unchanged", "[config][fault-3]") {
  Config config = parse_small({"train.samples=7"});
  config.model.attention_heads = 7;
  config.parallel.pipeline = 5;
  config.learning_rate.minimum = 1;
  const Config before = config;
  const std::string error = error_of([&] { resolve(config, 4, &kData); });
  INFO(error);
  CHECK(contains(error, "model.attention_heads = 7"));
  CHECK(contains(error, "parallel.pipeline = 5"));
  CHECK(contains(error, "learning_rate.minimum"));
  CHECK(contains(error, "4 ranks cannot hold"));
  CHECK(lines(error) == 4);
  CHECK(config == before);
}

TEST_CASE("update rules: the keys of a row need one of its rules", "[config]") {
  for (const UpdateRuleFacts& row : kUpdateRules) {
    for (const std::string_view name : row.keys) {
      CAPTURE(row.name, name);
      const Key* const key = find_key("optimizer", name);
      REQUIRE(key != nullptr);
      REQUIRE(key->constraint.needs.size() == 1);
      CHECK(key->constraint.needs.front().key == "optimizer.name");
      CHECK(key->constraint.needs.front().values == update_rules_with(name));
    }
  }
  const OptimizerConfig muon =
      resolved({"optimizer.name=muon", "optimizer.betas=[0.8, 0.9]", "optimizer.epsilon=1e-6",
                "optimizer.momentum=0.95", "optimizer.nesterov=false", "optimizer.muon_scale=match_adam_rms",
                "optimizer.adamw_learning_rate_factor=0.1", "optimizer.share=state"},
               1)
          .optimizer;
  CHECK(muon.adamw_learning_rate_factor == 0.1);
  CHECK(kind_of(kMuonScales, muon.muon_scale) == MuonScale::match_adam_rms);
  // The other keys of the table hold for all of them.
  CHECK(
      resolved({"optimizer.name=sgd", "optimizer.momentum=0.8", "optimizer.weight_decay=0.1"}, 1).optimizer.momentum ==
      0.8);
}

TEST_CASE("share_within: sets are equal and have whole samples and experts", "[config][fault-3]") {
  const auto refused = [](std::vector<std::string> settings, int ranks) {
    settings.insert(settings.end(), {"optimizer.share=weights", "train.global_batch_size=24"});
    return error_of([&] { resolved(settings, ranks); });
  };
  CHECK(refused({"optimizer.share_within=4"}, 8).empty());
  CHECK(refused({"optimizer.share_within=8"}, 8).empty());
  CHECK(contains(refused({"optimizer.share_within=1"}, 8), "= 1 shares nothing; take share = \"none\", or 2 and more"));
  CHECK(contains(refused({"optimizer.share_within=3"}, 8), "does not divide the context × data ranks, 1 × 8"));
  CHECK(contains(refused({"optimizer.share_within=3"}, 8), "possible: 2, 4"));
  CHECK(contains(refused({"optimizer.share_within=4"}, 1), "into equal sets; leave it out"));
  CHECK(contains(refused({"optimizer.share_within=6", "parallel.context=4"}, 8),
                 "no multiple of parallel.context × parallel.expert = 4 × 1"));
  CHECK(contains(refused({"optimizer.share_within=4", "optimizer.name=muon"}, 8),
                 "with the rule \"muon\": whole matrices are shared out among all copies; leave it out"));
  CHECK(contains(error_of([] {
                   resolved({"optimizer.share=none", "optimizer.share_within=2"}, 4);
                 }),
                 "optimizer.share"));
}

TEST_CASE("divided gradients: what needs whole ones later is refused", "[config][fault-3]") {
  const auto refused = [](const std::vector<std::string>& settings) { return error_of([&] { resolved(settings); }); };
  const std::string gradients = "optimizer.share=gradients";
  CHECK(refused({gradients}).empty());
  CHECK(contains(refused({gradients, "parallel.schedule=zero_bubble", "parallel.pipeline=2"}),
                 "take share = \"state\", or schedule = \"1f1b\""));
  CHECK(contains(refused({gradients, "optimizer.name=muon"}),
                 "the rule \"muon\" needs it whole; take share = \"state\""));
  const std::string weights = "optimizer.share=weights";
  CHECK(refused({weights}).empty());
  CHECK(contains(refused({weights, "parallel.pipeline=2"}), "take share = \"gradients\", or parallel.pipeline = 1"));
  CHECK(contains(refused({weights, "optimizer.name=muon"}), "the rule \"muon\" needs it whole"));
  CHECK(contains(refused({gradients, "optimizer.groups=[{names=[\"*\"], name=\"muon\"}]"}), "the rule \"muon\""));
}

TEST_CASE("optimizer.distributed: read from older files, refused as an option", "[config][fault-1]") {
  CHECK(contains(error_of([] { parse_small({"optimizer.distributed=true"}); }),
                 "it is now optimizer.share = \"state\" (true) or \"none\" (false)"));
  const auto read = [](const std::string& line, std::vector<std::string>& notes) {
    std::string text = print_config(parse_small());
    const std::string now = "share = \"none\"\n";
    const auto at = text.find(now);
    REQUIRE(at != std::string::npos);
    return parse_config_text(text.replace(at, now.size(), line + "\n"), "old.toml", {}, &notes).optimizer.share;
  };
  std::vector<std::string> notes;
  CHECK(read("distributed = true", notes) == "state");
  REQUIRE(notes.size() == 1);
  CHECK(contains(notes[0], "optimizer.distributed = true is read as optimizer.share = \"state\""));
  CHECK(read("distributed = false", notes) == "none");
  CHECK(contains(error_of([&] { read("distributed = 1", notes); }), "it is now optimizer.share"));
  CHECK(contains(error_of([&] { read("distributed = true\nshare = \"none\"", notes); }),
                 "is the earlier name of optimizer.share, which is given too; remove optimizer.distributed"));
}
