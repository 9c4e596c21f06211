// Facts that a checkpoint has of its run, and those that another run must share to load it.
#include <algorithm>

#include "support/catch.h"
#include "training/step/compatibility.h"

using namespace megatron;
using nlohmann::json;
using Keys = std::vector<std::string>;

namespace {

json facts_with(const std::function<void(ModelConfig&)>& change) {
  Config config;
  config.model.hidden_size = 32;
  config.model.attention_heads = 4;
  change(config.model);
  return model_signature(config, {});
}

using Change = std::function<void(ModelConfig&)>;

/// Keys of the facts that differ between two models, where `signature` says which of them count.
Keys differing(
    const Change& base, const Change& change,
    json (*signature)(const ModelConfig&, json) = [](const ModelConfig&, json facts) { return facts; }) {
  const auto counting = [&](const Change& of) { return signature(ModelConfig{}, facts_with(of)); };
  Keys keys;
  const json changed = counting([&](ModelConfig& model) { base(model), change(model); });
  for (const FactDifference& difference : compare_facts(counting(base), changed)) keys.push_back(difference.key);
  return keys;
}

void as_it_is(ModelConfig&) {}
void rotary(ModelConfig& model) {
  model.position_embedding = "rope";
}

std::vector<FactDifference> mismatches(const json& saved, const json& current, bool same_data = true) {
  return data_order_mismatches(compare_facts(saved, current), same_data);
}

Keys keys_of(const std::vector<FactDifference>& differences) {
  Keys keys;
  for (const FactDifference& difference : differences) keys.push_back(difference.key);
  return keys;
}

}  // namespace

TEST_CASE("model facts: a changed key changes its own fact alone", "[train]") {
  const std::pair<const char*, Change> changes[] = {
      {"layers", [](ModelConfig& model) { model.layers = 7; }},
      {"query_groups", [](ModelConfig& model) { model.query_groups = 2; }},
      {"ffn_hidden_size", [](ModelConfig& model) { model.ffn_hidden_size = 99; }},
      {"sequence_length", [](ModelConfig& model) { model.sequence_length = 48; }},
      {"max_position_embeddings", [](ModelConfig& model) { model.max_position_embeddings = 96; }},
      {"position_embedding", [](ModelConfig& model) { model.position_embedding = "alibi"; }},
      {"activation", [](ModelConfig& model) { model.activation = "relu"; }},
      {"normalization", [](ModelConfig& model) { model.normalization = "rmsnorm"; }},
      {"norm_epsilon", [](ModelConfig& model) { model.norm_epsilon = 1e-3; }},
      {"tie_embeddings", [](ModelConfig& model) { model.tie_embeddings = !model.tie_embeddings; }},
      {"bias", [](ModelConfig& model) { model.bias = false; }},
  };
  for (const auto& [key, change] : changes) {
    CAPTURE(key);
    CHECK(differing(as_it_is, change) == Keys{key});
    const Keys weights = differing(as_it_is, change, weights_signature);
    CHECK((std::count(weights.begin(), weights.end(), key) == 1) == (key != std::string("sequence_length")));
  }
  CHECK(differing(as_it_is, [](ModelConfig& model) { model.hidden_dropout = 0.7; }) == Keys{});
  CHECK(differing(as_it_is, [](ModelConfig& model) { model.init_std = 0.7; }) == Keys{});
  CHECK(differing(as_it_is, [](ModelConfig& model) { model.head_chunks = 7; }) == Keys{});
  CHECK(differing(as_it_is, as_it_is, resume_signature) == Keys{});
}

TEST_CASE("model facts: the vocabulary is one of them, by tokenizer and hash", "[train]") {
  Config config;
  config.model.hidden_size = config.model.attention_heads = 4;
  const json one = model_signature(config, {.tokenizer = "gpt2", .hash = 5}),
             two = model_signature(config, {"byte", 6});
  CHECK(one.at("tokenizer") == "gpt2");
  CHECK(one.at("tokenizer_hash") == 5);
  CHECK(keys_of(compare_facts(one, two)) == Keys{"tokenizer", "tokenizer_hash"});
}

TEST_CASE("resume: the size of a position table counts only if there is one", "[train]") {
  const Change longer = [](ModelConfig& model) { model.max_position_embeddings = 96; };
  CHECK(differing(as_it_is, longer, resume_signature) == Keys{"max_position_embeddings"});
  CHECK(differing(rotary, longer) == Keys{"max_position_embeddings"});
  CHECK(differing(rotary, longer, resume_signature) == Keys{});
  CHECK(differing(
            rotary, [](ModelConfig& model) { model.rotary_base = 5e5; }, resume_signature) == Keys{"rotary.base"});
}

TEST_CASE("start from weights: rotations may stretch but turn the same channels", "[train]") {
  CHECK(differing(
            rotary, [](ModelConfig& model) { model.rotary_base = 5e5; }, weights_signature) == Keys{});
  CHECK(differing(
            rotary, [](ModelConfig& model) { model.rotary_fraction = 0.5; }, weights_signature) ==
        Keys{"rotary.fraction"});
  CHECK(differing(
            rotary, [](ModelConfig& model) { model.sequence_length = 48; }, weights_signature) == Keys{});
}

TEST_CASE("schedule facts: batch, its ramp-up and the curriculum", "[train]") {
  Config config;
  config.train.global_batch_size = 64;
  const json plain = schedule_facts(config);
  CHECK(plain.at("global_batch_size") == 64);
  CHECK(plain.size() == 3);
  config.train.batch_ramp_up = {16, 16, 320};
  CHECK(keys_of(compare_facts(plain, schedule_facts(config))) == Keys{"batch_ramp_up"});
  config.train.curriculum.schedule = "fixed_linear";
  CHECK(keys_of(compare_facts(plain, schedule_facts(config))) == Keys{"batch_ramp_up", "curriculum"});
}

TEST_CASE("data order: what an older checkpoint does not say is no mismatch", "[train]") {
  const json now = {{"seed", 7}, {"training_share", 0.9}};
  CHECK(mismatches(now, now).empty());
  CHECK(mismatches(json::object(), now).empty());
  CHECK(keys_of(mismatches({{"seed", 8}, {"training_share", 0.9}}, now)) == Keys{"seed"});
  CHECK(keys_of(mismatches({{"seed", 7}, {"training_share", 0.5}}, now)) == Keys{"training_share"});
  // Recorded, and gone since: this run's order is another one.
  CHECK(keys_of(mismatches({{"seed", 7}, {"training_share", 0.9}, {"order", "megatron"}}, now)) == Keys{"order"});
}

TEST_CASE("data order: unrecorded sets of a blend count where the data differ", "[train]") {
  const json saved = {{"blend_weights", {0.5, 0.5}}};
  const json now = {{"blend_weights", {0.5, 0.5}}, {"blend_sets", {"a", "b"}}};
  CHECK(mismatches(saved, now, true).empty());
  const std::vector<FactDifference> changes = mismatches(saved, now, false);
  REQUIRE(keys_of(changes) == Keys{"blend_sets"});
  CHECK(changes[0].saved == "others, or these in another order,");
  CHECK(changes[0].current == R"(["a","b"])");
  const json swapped = {{"blend_weights", {0.5, 0.5}}, {"blend_sets", {"b", "a"}}};
  CHECK(keys_of(mismatches(swapped, now, true)) == Keys{"blend_sets"});
}

TEST_CASE("evaluations: only splits that both runs evaluate can differ", "[train]") {
  const auto split = [](const char* set) { return json{{"sets", {set}}, {"weights", {1.0}}}; };
  const json saved = {{"validation", split("a")}, {"test", split("b")}};
  CHECK(changed_evaluations(saved, saved).empty());
  CHECK(changed_evaluations(saved, {{"validation", split("a")}}).empty());
  CHECK(changed_evaluations({{"validation", split("a")}}, saved).empty());
  CHECK(keys_of(changed_evaluations(saved, {{"validation", split("c")}, {"test", split("b")}})) ==
        Keys{"validation.sets"});
}

TEST_CASE("facts of a model: every key of its form changes them", "[train]") {
  const json plain = facts_with([](ModelConfig&) {});
  CHECK(plain.at("bias") == true);
  const std::pair<const char*, std::function<void(ModelConfig&)>> changes[] = {
      {"head_size", [](ModelConfig& model) { model.given_head_size = 10; }},
      {"attention_window", [](ModelConfig& model) { model.attention_window = 7; }},
      {"residual", [](ModelConfig& model) { model.residual = "parallel"; }},
      {"query_key_norm", [](ModelConfig& model) { model.query_key_norm = true; }},
      {"base_hidden_size", [](ModelConfig& model) { model.base_hidden_size = 16; }},
      {"base_head_size", [](ModelConfig& model) { model.base_head_size = 4; }},
      {"attention_softcap", [](ModelConfig& model) { model.attention_softcap = 50; }},
      {"scale_embeddings", [](ModelConfig& model) { model.scale_embeddings = true; }},
      {"embedding_norm", [](ModelConfig& model) { model.embedding_norm = true; }},
      {"head_bias", [](ModelConfig& model) { model.head_bias = true; }},
  };
  for (const auto& [key, change] : changes) {
    CAPTURE(key);
    CHECK_FALSE(plain.contains(key));  // as in checkpoints of before there was the key
    CHECK(facts_with(change).contains(key));
  }
  CHECK(facts_with([](ModelConfig& model) { model.given_head_size = 8; }) == plain);  // the size that it has anyway
  CHECK(facts_with([](ModelConfig& model) { model.bias = false; }).at("bias") == false);
  CHECK(facts_with([](ModelConfig& model) { model.bias = {true, false, false}; }).at("bias") == "query_key_value");
}
