// Models that Hugging Face's transformers saved: imported, they give the logits that it computes; exported again, they
// are the same numbers. scripts/golden/make_interop_golden.py made them; scripts/checks/check_interop.py checks more of
// them, and what transformers makes of our exports, where it is installed.
#include "checkpoint/hugging_face/hugging_face_families.h"
#include "config/parse/parse.h"
#include "config/rules/resolve.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "golden/interop_models.h"
#include "inference/decoding/inference_model.h"
#include "support/data_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// The part of an input file that an import writes is of the model that it imported.
void check_fragment(const std::string& imported) {
  const std::string rest = "[train]\nsteps = 1\nglobal_batch_size = 1\n[data]\ntrain = \"data\"\n";
  Config config = parse_config_text(contents_of(imported + "/model.toml") + rest, "model.toml");
  resolve(config, 1, nullptr);
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    CHECK((config.model == config_for_inference(open_named_checkpoint(world, imported, warnings)).model));
  });
}

void require_round_trip(HuggingFaceFormat format, const std::string& name) {
  const TemporaryFolder folder;
  const ConversionReport imported = import_model(stored_model(name), folder.file("imported"));
  const json expected = json::parse(contents_of(stored_model(name) + "/logits.json"));
  REQUIRE(imported.compared.has_value());
  CHECK(imported.compared->tokens == expected.at("tokens").get<std::vector<std::int32_t>>());
  CHECK(json(imported.compared->encoder_tokens) == expected.value("encoder_tokens", json::array()));
  CHECK(imported.compared->largest_difference == 0);
  CHECK(largest_difference(imported.compared->logits, expected.at("logits").get<std::vector<float>>()) < 1e-5);

  export_model(folder.file("imported"), folder.file("exported"), {.format = format, .max_shard_bytes = 2000});
  const SafetensorsModel before(stored_model(name)), after(folder.file("exported"));
  CHECK(before.names() == after.names());
  for (const std::string& tensor : before.names()) {
    CAPTURE(tensor);
    CHECK(before.entry(tensor).shape == after.entry(tensor).shape);
    std::vector<float> theirs = numbers_of(before, tensor);
    // OPT's first two rows belong to no position.
    if (tensor == "model.decoder.embed_positions.weight") std::fill_n(theirs.begin(), 2 * 16, 0.0f);
    if (name == "gemma" && tensor.find("norm") != std::string::npos) {  // 1 was added and taken away again
      CHECK(largest_difference(theirs, numbers_of(after, tensor)) < 1e-7);
    } else {
      CHECK(theirs == numbers_of(after, tensor));
    }
  }
  CHECK(fs::exists(folder.file("exported/model.safetensors.index.json")));
  check_fragment(folder.file("imported"));
  // The export, in many files, is imported again with the same logits.
  CHECK(import_model(folder.file("exported"), folder.file("again")).compared->logits == imported.compared->logits);
}

}  // namespace

TEST_CASE("every family as transformers saves it: the same logits and tensors", "[interop]") {
  const HuggingFaceFormat format = GENERATE(from_range(hugging_face_formats()));
  CAPTURE(name_of(format));
  require_round_trip(format, name_of(format));
}

TEST_CASE("T5 1.1, gated and untied, as transformers saves it", "[interop]") {
  require_round_trip(HuggingFaceFormat::t5, "t5-gated");
}

TEST_CASE("BERT with its own vocab.txt: added tokens get rows of zeros", "[interop]") {
  Copy copy("bert");
  std::string lines = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (char c = 'a'; c < 'o'; ++c) lines += std::string(1, c) + "\n";
  write_file(copy.path() + "/vocab.txt", lines);
  const ConversionReport imported = import_model(copy.path(), copy.target());
  CHECK(imported.has_tokenizer);
  CHECK(imported.zero_rows == 2);
  REQUIRE(imported.compared.has_value());
  CHECK(imported.compared->differing == 0);
  const json expected = json::parse(contents_of(stored_model("bert") + "/logits.json"));
  CHECK(imported.compared->tokens == expected.at("tokens").get<std::vector<std::int32_t>>());
  std::vector<float> known, added;
  for (std::size_t i = 0; i < imported.compared->logits.size(); ++i) {
    (i % 21 < 19 ? known : added).push_back(imported.compared->logits[i]);
  }
  CHECK(largest_difference(known, expected.at("logits").get<std::vector<float>>()) < 1e-5);
  CHECK(added == std::vector<float>(2 * imported.compared->tokens.size()));

  // Shards of that vocabulary say the same; and what is exported has all tokens.
  const TemporaryFolder folder;
  const auto tokenizer = make_tokenizer({"bert-uncased", copy.path() + "/vocab.txt", ""});
  make_shard(folder.file("p"), {{5, 20}}, 0, 1, vocabulary_of(*tokenizer));
  CHECK(import_model(copy.path(), folder.file("by data"), {.data = folder.file("p")}).zero_rows == 2);
  export_model(copy.target(), folder.file("exported"));
  CHECK(import_model(folder.file("exported"), folder.file("again")).zero_rows == 0);

  fs::remove_all(copy.target());
  write_file(copy.path() + "/vocab.txt", lines + "z\n");
  copy.refused("its tables have 19 rows, the vocabulary has 22 tokens");
}

TEST_CASE("a base model comes without a prefix, whatever the family", "[interop]") {
  const std::string name = GENERATE("opt", "bloom", "gpt_neox");
  Copy copy(name);
  const auto expected = import_model(copy.path(), copy.target()).compared->logits;
  fs::remove_all(copy.target());
  copy.change_tensors([](auto& tensors) {
    std::map<std::string, std::pair<NewTensor, std::vector<float>>> bare;
    for (auto [tensor_name, tensor] : tensors) {
      for (const std::string prefix : {"model.", "transformer.", "gpt_neox."}) {
        if (tensor_name.starts_with(prefix)) tensor.first.name = tensor_name.substr(prefix.size());
      }
      bare[tensor.first.name] = tensor;
    }
    tensors = bare;
  });
  CHECK(import_model(copy.path(), copy.target()).compared->logits == expected);
}

TEST_CASE("rotations are read from both forms of config.json", "[interop]") {
  // Both forms of one model: rope_scaling and rope_theta of older files, rope_parameters of newer ones.
  const auto logits_with = [](const std::function<void(json&)>& change) {
    Copy copy("llama");
    copy.change_config([&](json& config) {
      config.erase("rope_parameters");
      change(config);
    });
    return import_model(copy.path(), copy.target()).compared->logits;
  };
  const auto plain = logits_with([](json&) {});
  const auto older = logits_with([](json& config) {
    config["rope_theta"] = 500;
    config["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  });
  CHECK(largest_difference(older, plain) > 1e-3);
  const json newer = {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 500}};
  CHECK(logits_with([&](json& config) { config["rope_parameters"] = newer; }) == older);
  CHECK(logits_with([](json& config) {
          config["rope_parameters"] = {{"rope_type", "default"}, {"factor", 2}, {"rope_theta", 10000}};
        }) == plain);
  // Where both are given, the older scaling counts; no two bases.
  CHECK(logits_with([&](json& config) {
          config["rope_scaling"] = newer;
          config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 77}};
          config["rope_theta"] = 500;
        }) == older);
  // A Llama rotates all of each head, whatever this key says.
  CHECK(logits_with([](json& config) { config["partial_rotary_factor"] = 0.5; }) == plain);
  // The length that is missing is that of all positions.
  const json llama3 = {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}};
  json with_length = llama3;
  with_length["original_max_position_embeddings"] = 16;
  CHECK(logits_with([&](json& config) { config["rope_scaling"] = llama3; }) ==
        logits_with([&](json& config) { config["rope_parameters"] = with_length; }));
}

TEST_CASE("a family's models that cannot be expressed are refused by their key", "[interop]") {
  const auto refuse = [](const std::string& family, const json& changes, const std::string& part) {
    INFO(family << ": " << changes.dump());
    Copy copy(family);
    copy.change_config([&](json& config) { config.update(changes); });
    copy.refused(part);
  };
  for (const std::string type : {"yarn", "dynamic", "longrope", "mrope"}) {
    refuse("llama", {{"rope_scaling", {{"rope_type", type}, {"factor", 2}}}},
           "rotary scaling of type \"" + type + "\" is not supported; linear and llama3 are");
    refuse("qwen3", {{"rope_parameters", {{"type", type}, {"factor", 2}}}}, "\"" + type + "\" is not supported");
  }
  refuse("llama", {{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}},
         "differ from layer to layer");
  refuse("llama", {{"partial_rotary_factor", 0.5}, {"rope_scaling", {{"type", "linear"}, {"factor", 2}}}},
         "\"partial_rotary_factor\" = 0.5 together with rotary scaling");
  const json linear = {{"rope_type", "linear"}, {"factor", 2}}, plain = {{"rope_type", "default"}, {"rope_theta", 77}};
  refuse("llama", {{"rope_theta", 500}, {"rope_parameters", plain}},
         "\"rope_theta\" is 77 in its rotary scaling and 500 without");
  refuse("llama", {{"rope_scaling", plain}}, "\"rope_theta\" is 77 in its rotary scaling and 10000 without");
  refuse("llama", {{"rope_scaling", nullptr}, {"rope_parameters", linear}}, "\"rope_parameters\" is a linear one");
  refuse("llama", {{"rope_scaling", {{"rope_type", "linear"}, {"type", "yarn"}, {"factor", 2}}}}, "\"type\" of its");
  refuse("gpt2", {{"hidden_size", 9}}, "\"n_embd\" and \"hidden_size\" are two names of one key");
  refuse("mistral", {{"hidden_act", nullptr}},
         "\"hidden_act\" is null, which is no value of it; leave it out if \"silu\"");
  refuse("bert", {{"pruned_heads", {{"0", {1}}}}}, "\"pruned_heads\"");
  refuse("t5", {{"tie_encoder_decoder", true}}, "\"tie_encoder_decoder\"");
  refuse("llama", {{"model_type", "umt5"}}, "a table of distances in every layer");
  refuse("llama", {{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}},
         "its weights are quantized (\"quant_method\": \"gptq\")");
  refuse("gpt2", {{"quantization_config", {{"load_in_8bit", true}}}}, "call dequantize() and save_pretrained()");
  refuse("mistral", {{"layer_types", {"full_attention", "sliding_attention"}}}, "\"layer_types\": a window in some");
  refuse("mistral", {{"layer_types", {"chunked_attention", "chunked_attention"}}}, "\"chunked_attention\"");
  refuse("qwen2",
         {{"use_sliding_window", true}, {"sliding_window", 3}, {"max_window_layers", 1}, {"layer_types", nullptr}},
         "\"max_window_layers\" is 1 of 2 layers");
  refuse("qwen2", {{"layer_types", {"sliding_attention", "sliding_attention"}}}, "\"use_sliding_window\"");
  refuse("gemma", {{"use_bidirectional_attention", true}}, "\"use_bidirectional_attention\": true");
  refuse("qwen2_moe", {{"use_sliding_window", true}, {"sliding_window", 3}},
         "versions of transformers have the window in other layers");
  refuse("qwen3", {{"layer_types", {"full_attention"}}}, "\"layer_types\" is not an array of 2 texts");
  refuse("mt5", {{"transformers_version", "4.57.0"}},
         "\"tie_word_embeddings\": true is a scaled head in transformers 4");
  refuse("gemma", {{"hidden_act", "gelu"}},
         "\"gelu\" is not supported with a gate; \"gelu_pytorch_tanh\" is, with which Gemma was trained");
  refuse("gemma", {{"hidden_act", "relu"}}, "the activation \"relu\" is not supported with a gate");
  refuse("opt", {{"do_layer_norm_before", false}}, "\"do_layer_norm_before\": false");
  refuse("opt", {{"_remove_final_layer_norm", true}}, "\"_remove_final_layer_norm\": true");
  refuse("opt", {{"word_embed_proj_dim", 8}}, "\"word_embed_proj_dim\" is not \"hidden_size\"");
  refuse("opt", {{"layer_norm_elementwise_affine", false}}, "\"layer_norm_elementwise_affine\"");
  refuse("bloom", {{"apply_residual_connection_post_layernorm", true}}, "\"apply_residual_connection_post_layernorm\"");
  refuse("mixtral", {{"router_jitter_noise", 0.1}}, "\"router_jitter_noise\"");
  refuse("qwen2_moe", {{"shared_expert_intermediate_size", 25}},
         "\"shared_expert_intermediate_size\" = 25 is no multiple of \"moe_intermediate_size\" = 10");
  refuse("qwen2_moe", {{"mlp_only_layers", {0, 1, 2, 3}}}, "\"mlp_only_layers\" leaves no layer with experts");
  refuse("qwen2_moe", {{"mlp_only_layers", {0, 1}}}, "has no tensor model.layers.0.mlp.gate_proj.weight");
  refuse("t5", {{"is_decoder", true}}, "\"is_decoder\": true");
  refuse("t5", {{"is_encoder_decoder", false}}, "\"is_encoder_decoder\": false");
  refuse("t5", {{"dense_act_fn", "silu"}}, "the activation \"silu\" is not supported");
  refuse("t5-gated", {{"dense_act_fn", "relu"}}, "the activation \"relu\" is not supported with a gate");
  refuse("t5", {{"num_decoder_layers", 200000}}, "200002 layers, and the files have 60 tensors");
  refuse("t5", {{"num_decoder_layers", 2}}, "decoder.block.2.layer.0.SelfAttention.k.weight has no place");
  refuse("t5", {{"relative_attention_num_buckets", 16}}, "relative_attention_bias.weight is [12,4], and by its");
  refuse("phi", {{"qk_layernorm", true}}, "\"qk_layernorm\": true");
  refuse("phi", {{"rope_parameters", {{"partial_rotary_factor", 2}}}}, "model.rotary_fraction = 2 is out of range");
}

TEST_CASE("every tensor of an imported model is used, and none is missing", "[interop]") {
  {
    Copy copy("gpt2");
    copy.change_tensors([](auto& tensors) {
      tensors["transformer.h.2.ln_1.weight"] = tensors.at("transformer.h.1.ln_1.weight"),
      tensors["transformer.h.2.ln_1.weight"].first.name = "transformer.h.2.ln_1.weight";
    });
    copy.refused("transformer.h.2.ln_1.weight has no place");
  }
  {
    Copy copy("gpt2");
    copy.change_tensors([](auto& tensors) { tensors.erase("transformer.h.0.mlp.c_proj.bias"); });
    copy.refused("has no tensor transformer.h.0.mlp.c_proj.bias");
  }
  {
    Copy copy("gpt2");
    copy.change_config([](json& config) { config["n_inner"] = 24; });
    copy.refused("transformer.h.0.mlp.c_fc.weight is [8,32], and by its config.json [8,24]");
  }
}

TEST_CASE("import: old masks are no weights and a tied head must be the table", "[interop]") {
  Copy copy("gpt2");
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape, std::vector<float> numbers) {
    copy.change_tensors([&](auto& tensors) { tensors[name] = {{name, shape}, std::move(numbers)}; });
  };
  add("transformer.h.0.attn.bias", {1, 1, 2, 2}, {1, 0, 1, 1});
  add("transformer.h.0.attn.masked_bias", {}, {-1e4f});
  std::vector<float> word;
  copy.change_tensors([&](auto& tensors) { word = tensors.at("transformer.wte.weight").second; });
  add("lm_head.weight", {19, 8}, word);
  CHECK(import_model(copy.path(), copy.target()).compared->largest_difference == 0);
  fs::remove_all(copy.target());
  word[40] += 1;
  add("lm_head.weight", {19, 8}, word);
  copy.refused("lm_head.weight has no place");
}

TEST_CASE("import: a copy of BERT's head bias must be equal or in its place", "[interop]") {
  const std::string name = GENERATE("bert", "megatron-bert");
  Copy copy(name);
  const auto expected = import_model(copy.path(), copy.target()).compared->logits;
  fs::remove_all(copy.target());
  const auto add = [&](const char* original, const char* other, float change) {
    copy.change_tensors([&](auto& tensors) {
      tensors[other] = tensors.at(original);
      tensors[other].first.name = other;
      tensors[other].second[3] += change;
    });
  };
  add("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight", 0);
  add("cls.predictions.bias", "cls.predictions.decoder.bias", 0);
  CHECK(import_model(copy.path(), copy.target()).compared->logits == expected);
  fs::remove_all(copy.target());
  copy.change_tensors([](auto& tensors) { tensors.erase("cls.predictions.bias"); });
  CHECK(import_model(copy.path(), copy.target()).compared->logits == expected);
  fs::remove_all(copy.target());
  add("cls.predictions.decoder.bias", "cls.predictions.bias", 1);
  copy.refused(
      "cls.predictions.decoder.bias has no place in the model of its config.json, where it is "
      "cls.predictions.bias, whose numbers are others");
}

TEST_CASE("GPT-2's base model comes without a prefix", "[interop]") {
  Copy copy("gpt2");
  const auto expected = import_model(copy.path(), copy.target()).compared->logits;
  fs::remove_all(copy.target());
  copy.change_tensors([](auto& tensors) {
    std::map<std::string, std::pair<NewTensor, std::vector<float>>> bare;
    for (auto [name, tensor] : tensors) {
      tensor.first.name = name.substr(std::string("transformer.").size());
      bare[tensor.first.name] = tensor;
    }
    tensors = bare;
  });
  CHECK(import_model(copy.path(), copy.target()).compared->logits == expected);
}

TEST_CASE("a configuration that is no model of ours is refused by its key", "[interop]") {
  const auto refuse = [](const std::string& key, const json& value, const std::string& part) {
    Copy copy("gpt2");
    copy.change_config([&](json& config) { config[key] = value; });
    copy.refused(part);
  };
  refuse("model_type", "falcon", "\"model_type\" is \"falcon\"; what can be imported is gpt2, llama, mistral, ");
  for (const std::string task : {"ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification"}) {
    refuse("architectures", {"GPT2" + task},
           "\"architectures\" is GPT2" + task +
               ", a model with the head of a task, which is not imported; what is "
               "imported is GPT2LMHeadModel");
  }
  refuse("n_layer", 0, "\"n_layer\"");
  refuse("n_layer", nullptr, "\"n_layer\"");
  refuse("n_embd", 9007199254740993LL, "\"n_embd\"");
  refuse("n_head", 3, "attention_heads");
  refuse("activation_function", "swish", "activation \"swish\"");
  refuse("scale_attn_by_inverse_layer_idx", true, "scale_attn_by_inverse_layer_idx");
  refuse("layer_norm_epsilon", "small", "layer_norm_epsilon");
  Copy copy("gpt2");
  fs::remove(copy.path() + "/config.json");
  copy.refused("config.json cannot be read");
}

TEST_CASE("import: a smaller vocabulary leaves the tables' last rows to padding", "[interop]") {
  Copy copy("gpt2");
  const auto whole = import_model(copy.path(), copy.target()).compared->logits;
  fs::remove_all(copy.target());
  ImportOptions options;
  options.vocab_size = 17;
  const ConversionReport report = import_model(copy.path(), copy.target(), options);
  const auto& logits = report.compared->logits;
  REQUIRE(logits.size() == 16 * 17);
  CHECK(report.compared->largest_difference == 0);
  fs::remove_all(copy.target());
  options.vocab_size = 20;
  copy.refused("its tables have 19 rows, the vocabulary has 20 tokens", options);
}
