// Exports for Hugging Face's transformers: which family has a place for a model, and what is written of it. The models
// are those of test_interop.cpp.
#include "checkpoint/hugging_face/hugging_face_families.h"
#include "golden/interop_models.h"

using namespace megatron;
using namespace megatron::test;

namespace {

ModelConfig small_model() {
  ModelConfig model;
  model.layers = 2;
  model.hidden_size = 32;
  model.attention_heads = model.query_groups = 4;
  model.ffn_hidden_size = 128;
  return model;
}

/// The same sizes as a Llama without biases.
ModelConfig family_of_llama(ModelConfig model) {
  model.position_embedding = "rope";
  model.normalization = "rmsnorm";
  model.activation = "swiglu";
  model.bias = false;
  return model;
}

}  // namespace

TEST_CASE("export: the first family that has a place for all of a model", "[interop]") {
  ModelConfig model = small_model();
  CHECK(format_of(model) == HuggingFaceFormat::gpt2);
  model.activation = "relu";
  model.bias = false;
  CHECK(format_of(model) == HuggingFaceFormat::opt);
  model.norm_epsilon = 1e-6;
  require_error(ErrorKind::configuration, {"opt: model.norm_epsilon must be 1e-05", "gpt2: model.bias must be true"},
                [&] { format_of(model); });
  model = family_of_llama(model);
  CHECK(format_of(model) == HuggingFaceFormat::llama);
  model.attention_window = 7;
  model.head_chunks = 8;  // a way to compute it, and no part of its form
  CHECK(format_of(model) == HuggingFaceFormat::mistral);
  model.bias = {true, false, false};
  CHECK(format_of(model) == HuggingFaceFormat::qwen2);
  model.query_key_norm = true;
  require_error(ErrorKind::configuration, {"qwen3: model.bias must be false or \"attention\"", "model.query_key_norm"},
                [&] { format_of(model); });
  model.bias = {true, true, false};
  CHECK(format_of(model) == HuggingFaceFormat::qwen3);
  require_error(ErrorKind::configuration, {"llama: model.attention_window must be left out"},
                [&] { require_format(model, HuggingFaceFormat::llama); });
  model.attention_softcap = 50;
  require_error(
      ErrorKind::configuration,
      {"gpt2: ", "qwen3: model.attention_softcap must be 0.0", "gemma: ", "model.attention_softcap must be 0.0"},
      [&] { format_of(model); });
  model.attention_softcap = 0;
  model.base_hidden_size = model.hidden_size / 2;  // logits with a factor
  require_error(ErrorKind::configuration, {"gpt2: ", "qwen3: model.base_hidden_size must be left out"},
                [&] { format_of(model); });
}

TEST_CASE("export: a model with experts needs a family with its shared experts", "[interop]") {
  ModelConfig model = family_of_llama(small_model());
  model.tie_embeddings = false;
  model.norm_epsilon = 1e-6;
  model.moe.experts = 4;
  model.moe.ffn_hidden_size = 16;
  CHECK(format_of(model) == HuggingFaceFormat::mixtral);
  model.moe.shared_experts = 2;
  model.moe.shared_gate = true;
  model.moe.every = 2;
  model.bias = {true, false, false};
  CHECK(format_of(model) == HuggingFaceFormat::qwen2_moe);
  model.moe.shared_gate = false;
  require_error(ErrorKind::configuration,
                {"qwen2_moe: moe.shared_gate must be true", "moe.shared_experts must be left out"},
                [&] { format_of(model); });
  model.moe.shared_experts = 0;
  model.moe.residual = true;
  require_error(ErrorKind::configuration, {"moe.residual must be false", "moe.shared_experts must be given"},
                [&] { format_of(model); });
}

TEST_CASE("an export writes every key of its family, windows by layer among them", "[interop]") {
  const HuggingFaceFormat format = GENERATE(from_range(hugging_face_formats()));
  const TemporaryFolder folder;
  import_model(stored_model(name_of(format)), folder.file("ours"));
  export_model(folder.file("ours"), folder.file("theirs"), {.format = format});
  const json config = json::parse(contents_of(folder.file("theirs/config.json")));
  for (const auto& [key, value] : family_of(format).defaults.keys.items()) {
    INFO(name_of(format) << ": " << key);
    CHECK(config.contains(key));
  }
}

TEST_CASE("export: Qwen's windows per layer, for transformers 4 and 5", "[interop]") {
  ModelConfig model = family_of_llama(small_model());
  model.layers = 3;
  const HuggingFaceFormat format = GENERATE(HuggingFaceFormat::qwen2, HuggingFaceFormat::qwen3,
                                            HuggingFaceFormat::qwen2_moe, HuggingFaceFormat::qwen3_moe);
  const auto config = [&](std::int64_t window) {
    model.attention_window = window;
    return hugging_face_config(model, format, "float32");
  };
  const json windowed = config(7), plain = config(0);
  CHECK(windowed.at("layer_types") == json(std::vector<std::string>(3, "sliding_attention")));
  CHECK(windowed.at("sliding_window") == 7);
  CHECK(windowed.at("max_window_layers") == 0);
  CHECK(plain.at("layer_types") == json(std::vector<std::string>(3, "full_attention")));
  CHECK(plain.at("use_sliding_window") == false);
}

TEST_CASE("a model that a format has no place for is not written in it", "[interop]") {
  Copy copy("gpt2");
  import_model(copy.path(), copy.target());
  require_error(ErrorKind::configuration, {"llama: model.position_embedding must be \"rope\"", "rmsnorm", "swiglu"},
                [&] { export_model(copy.target(), copy.target() + "_llama", {.format = HuggingFaceFormat::llama}); });
  CHECK_FALSE(fs::exists(copy.target() + "_llama"));
}

TEST_CASE("16-bit exports round their numbers, once", "[interop]") {
  const auto type = GENERATE(SafetensorsType::bf16, SafetensorsType::f16);
  Copy copy("gpt2");
  import_model(copy.path(), copy.target());
  const ConversionReport report = export_model(copy.target(), copy.target() + "_16", {.type = type});
  CHECK(report.compared->largest_difference > 0);
  CHECK(report.compared->largest_difference < 0.02 * report.compared->largest_logit);
  const ConversionReport again = import_model(copy.target() + "_16", copy.target() + "_again");
  CHECK(again.compared->logits == report.compared->logits);
}
