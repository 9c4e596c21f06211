// Claims of a foreign config.json are checked against its files before anything is made of them.
#include "checkpoint/hugging_face/hugging_face.h"
#include "checkpoint/safetensors/safetensors.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/memory_limit.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

const json kGpt2 = {{"model_type", "gpt2"}, {"vocab_size", 8}, {"n_embd", 4},
                    {"n_layer", 1},         {"n_head", 2},     {"n_positions", 4}};
const json kLlama = {{"model_type", "llama"},       {"vocab_size", 8},          {"hidden_size", 4},
                     {"num_hidden_layers", 1},      {"num_attention_heads", 2}, {"intermediate_size", 8},
                     {"max_position_embeddings", 4}};

const json kPhi = [] {
  json phi = kLlama;
  phi["model_type"] = "phi";
  return phi;
}();

const json kQwenMoe = [] {
  json qwen = kLlama;
  qwen.update({{"model_type", "qwen3_moe"},
               {"num_key_value_heads", 2},
               {"num_experts", 2},
               {"num_experts_per_tok", 1},
               {"moe_intermediate_size", 8}});
  return qwen;
}();

void import_refused(json config, const json& changes, const std::string& part) {
  const TemporaryFolder folder;
  config.update(changes);
  write_safetensors(folder.path(), {{"transformer.wte.weight", {8, 4}}}, SafetensorsType::f32, 1 << 20,
                    [](std::size_t, std::span<float> numbers) { std::fill(numbers.begin(), numbers.end(), 1.0f); });
  write_file(folder.file("config.json"), config.dump());
  run_as_threads(1, [&](Communicator& world) {
#ifndef MEGATRON_TEST_SANITIZED
    const MemoryLimit limit(256 << 20);
#endif
    require_error(ErrorKind::checkpoint, {"config.json", part},
                  [&] { import_checkpoint(folder.path(), folder.file("target"), world, {}); });
  });
}

}  // namespace

TEST_CASE("import: a config.json with more layers than tensors is refused early", "[train][fault-50]") {
  import_refused(kGpt2, {{"n_layer", 1 << 24}}, "16777216 layers, and the files have 1 tensors");
  import_refused(kLlama, {{"num_hidden_layers", 2}}, "2 layers, and the files have 1 tensors");
  import_refused(kQwenMoe, {{"num_hidden_layers", 1 << 24}, {"mlp_only_layers", {0}}},
                 "16777216 layers, and the files have 1 tensors");
  import_refused(kQwenMoe, {{"num_experts", 4096}},
                 "4096 experts in 1 layers, of three tensors each, and the files have 1 tensors");
}

TEST_CASE("import: impossible or overflowing sizes of a config.json are refused", "[train][fault-50]") {
  const std::int64_t large = std::int64_t{1} << 32;  // large · (large + 1) is large again in 64 bits
  import_refused(kLlama, {{"hidden_size", large}, {"num_attention_heads", large}, {"head_dim", large + 1}},
                 "\"hidden_size\" is 4294967296, outside of 1 ... 16777216");
  import_refused(kLlama, {{"head_dim", large}}, "\"head_dim\" is 4294967296, outside of 1 ... 16777216");
  import_refused(kLlama, {{"head_dim", 1 << 24}},
                 "model.attention_heads × model.head_size = 2 × 16777216 is more than 2^24 channels");
  import_refused(kGpt2, {{"n_positions", large}}, "\"n_positions\" is 4294967296");
  import_refused(kGpt2, {{"vocab_size", -1}}, "\"vocab_size\" is -1");
  import_refused(kGpt2, {{"layer_norm_epsilon", -1}}, "model.norm_epsilon");
  import_refused(kGpt2, {{"resid_pdrop", 7}}, "model.hidden_dropout");
}

TEST_CASE("import: a rotation that the rules refuse is refused with its key", "[train][fault-50]") {
  import_refused(kLlama, {{"rope_theta", 0.5}}, "model.rotary_base = 0.5 is out of range");
  import_refused(kLlama, {{"rope_theta", -10000}}, "model.rotary_base = -10000");
  import_refused(kLlama, {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1}}}}, "model.rotary_base = 1");
  import_refused(kPhi, {{"partial_rotary_factor", 2}}, "model.rotary_fraction = 2 is out of range");
  import_refused(kPhi, {{"partial_rotary_factor", 0.5}}, "model.rotary_fraction = 0.5 of the head size");
  const auto scaled = [](double factor, double low, double high) {
    return json{{"rope_scaling",
                 {{"rope_type", "llama3"},
                  {"factor", factor},
                  {"low_freq_factor", low},
                  {"high_freq_factor", high},
                  {"original_max_position_embeddings", 8192}}}};
  };
  import_refused(kLlama, scaled(0, 1, 4), "model.rotary_scaling: factor = 0 is below 1");
  import_refused(kLlama, scaled(8, 4, 4), "low_frequency_factor = 4 is not below high_frequency_factor = 4");
  import_refused(kLlama, scaled(8, -1, 4), "model.rotary_scaling.low_frequency_factor = -1 is out of range");
  import_refused(kLlama, {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 0.5}}}}, "factor = 0.5 is below 1");
}
