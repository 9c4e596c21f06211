// T5 of Hugging Face: names and copies of its word table, tied and scaled heads as transformers 4 and 5 say them, and
// what an export cannot hold. The round trips of the stored models are in test_interop.cpp.
#include "golden/interop_models.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("T5: the word table may have other names, and copies that are the same", "[interop]") {
  Copy copy("t5");
  const auto expected = import_model(copy.path(), copy.target()).compared->logits;
  fs::remove_all(copy.target());
  const auto word_as = [&](const std::vector<std::string>& names, float change) {
    copy.change_tensors([&](auto& tensors) {
      std::vector<float> word;
      for (const char* name : {"shared.weight", "encoder.embed_tokens.weight"}) {
        if (tensors.contains(name)) word = tensors.at(name).second;
      }
      for (const char* name : {"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}) {
        tensors.erase(name);
      }
      for (const std::string& name : names) tensors[name] = {{name, {19, 16}}, word};
      tensors.at(names.back()).second[40] += change;
    });
  };
  word_as({"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}, 0);
  CHECK(import_model(copy.path(), copy.target()).compared->logits == expected);
  fs::remove_all(copy.target());
  word_as({"decoder.embed_tokens.weight", "encoder.embed_tokens.weight"}, 0);
  CHECK(import_model(copy.path(), copy.target()).compared->logits == expected);
  fs::remove_all(copy.target());
  word_as({"shared.weight", "encoder.embed_tokens.weight"}, 1);
  copy.refused("encoder.embed_tokens.weight has no place");
}

TEST_CASE("T5: both generations of transformers say if the head is tied or scaled", "[interop]") {
  const auto logits_of = [](const char* name, const std::function<void(json&)>& change) {
    Copy copy(name);
    copy.change_config(change);
    return import_model(copy.path(), copy.target()).compared->logits;
  };
  const auto as_saved = [](json&) {};
  const auto older = [](bool tied) {
    return [=](json& config) {
      config.erase("scale_decoder_outputs");
      config["tie_word_embeddings"] = tied;
    };
  };
  CHECK(logits_of("t5", older(true)) == logits_of("t5", as_saved));
  CHECK(logits_of("t5-gated", older(false)) == logits_of("t5-gated", as_saved));
  // A gate by its older keys alone, and by the newer one alone.
  CHECK(logits_of("t5-gated", [](json& config) { config.erase("feed_forward_proj"); }) ==
        logits_of("t5-gated", as_saved));
  CHECK(logits_of("t5-gated", [](json& config) {
          config.erase("dense_act_fn");
          config.erase("is_gated_act");
        }) == logits_of("t5-gated", as_saved));
  const auto scaled = logits_of("t5", as_saved);
  auto unscaled = logits_of("t5", [](json& config) { config["scale_decoder_outputs"] = false; });
  for (float& logit : unscaled) logit /= 4;  // sqrt(d_model)
  CHECK(largest_difference(scaled, unscaled) < 1e-5);
  // A head of its own that is scaled as well.
  const Copy copy("t5-gated");
  copy.change_config([](json& config) { config["scale_decoder_outputs"] = true; });
  copy.refused("lm_head.weight is not the word table, and by config.json (\"scale_decoder_outputs\"");
  copy.change_config(
      [](json& config) { config.erase("scale_decoder_outputs"); });  // and is tied, as version 4 reads it
  copy.refused("\"tie_word_embeddings\") the head is scaled");
}

TEST_CASE("T5: a head in the files is untied whatever the word table's name", "[interop]") {
  Copy copy("t5-gated");
  const auto expected = import_model(copy.path(), copy.target()).compared->logits;
  fs::remove_all(copy.target());
  copy.change_tensors([](auto& tensors) {
    auto word = tensors.at("shared.weight");
    word.first.name = "encoder.embed_tokens.weight";
    tensors.erase("shared.weight");
    tensors["encoder.embed_tokens.weight"] = word;
  });
  CHECK(import_model(copy.path(), copy.target()).compared->logits == expected);
}

TEST_CASE("T5: a tied head without scale is exported untied and imported tied", "[interop]") {
  const TemporaryFolder folder;
  const Copy copy("t5");
  copy.change_config([](json& config) { config["scale_decoder_outputs"] = false; });
  const auto expected = import_model(copy.path(), folder.file("ours")).compared->logits;
  export_model(folder.file("ours"), folder.file("theirs"));
  json config = json::parse(contents_of(folder.file("theirs/config.json")));
  CHECK(config.at("tie_word_embeddings") == false);
  CHECK(config.at("scale_decoder_outputs") == false);
  {
    const SafetensorsModel model(folder.file("theirs"));
    CHECK(numbers_of(model, "lm_head.weight") == numbers_of(model, "shared.weight"));
  }
  CHECK(import_model(folder.file("theirs"), folder.file("again")).compared->logits == expected);
  export_model(folder.file("again"), folder.file("second"));
  CHECK(contents_of(folder.file("second/config.json")) == contents_of(folder.file("theirs/config.json")));
  // As another program would write it.
  config.erase(kOwnConfigKey);
  write_file(folder.file("theirs/config.json"), config.dump());
  CHECK(import_model(folder.file("theirs"), folder.file("untied")).compared->logits == expected);
}

TEST_CASE("T5: an export says which dropout its config.json cannot hold", "[interop]") {
  ModelConfig model;
  model.family = "t5";
  model.attention_dropout = model.hidden_dropout = 0.1;
  CHECK(lost_in_format(model, HuggingFaceFormat::t5).empty());
  model.attention_dropout = 0;
  CHECK(lost_in_format(model, HuggingFaceFormat::bert).empty());
  CHECK(lost_in_format(model, HuggingFaceFormat::t5) ==
        std::vector<std::string>{
            "config.json of t5 has one dropout, \"dropout_rate\": it says model.hidden_dropout = 0.1, and "
            "model.attention_dropout = 0 is lost; set it where the model is trained further"});
}

TEST_CASE("Megatron's T5 is no model of Hugging Face's: its keys are named", "[interop]") {
  ModelConfig model;
  model.family = "t5";
  model.layers = model.decoder_layers = 2;
  model.hidden_size = 32;
  model.attention_heads = model.query_groups = 4;
  model.ffn_hidden_size = 128;
  model.head_bias = true;
  require_error(ErrorKind::configuration,
                {"t5: ", "model.position_embedding must be \"relative\"", "model.normalization must be \"rmsnorm\"",
                 "model.attention_scale must be \"none\"", "model.bias must be false", "model.head_bias must be false"},
                [&] { require_format(model, HuggingFaceFormat::t5); });
  require_error(ErrorKind::configuration, {"bert: model.family must be \"bert\"", "t5: model.position_embedding must"},
                [&] { format_of(model); });
}
