// Models that Hugging Face's transformers saved: imported, they give the logits that it computes; exported again, they
// are the same numbers. scripts/make_interop_golden.py made them; scripts/check_interop.py checks more of them, and
// what transformers makes of our exports, where it is installed.
#include <catch2/catch.hpp>
#include <cmath>

#include "comm/thread_communicator.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"
#include "train/hugging_face.h"

using namespace megatron;
using namespace megatron::test;

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string golden(const std::string& name) {
  return std::string(MEGATRON_GOLDEN_FOLDER) + "/interop/" + name;
}

ConversionReport import_model(const std::string& source, const std::string& target, const ImportOptions& options = {}) {
  ConversionReport report;
  run_as_threads(1, [&](Communicator& world) { report = import_checkpoint(source, target, world, options); });
  return report;
}

ConversionReport export_model(const std::string& source, const std::string& target, const ExportOptions& options = {}) {
  ConversionReport report;
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    report = export_checkpoint(open_named_checkpoint(world, source, warnings), target, world, options);
  });
  return report;
}

std::vector<float> numbers_of(const SafetensorsModel& model, const std::string& name) {
  std::vector<float> numbers(static_cast<std::size_t>(model.entry(name).elements()));
  model.read(name, 0, numbers);
  return numbers;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

/// A copy of a golden model that a test may damage.
class Copy {
 public:
  explicit Copy(const std::string& name) { fs::copy(golden(name), path()); }
  std::string path() const { return folder_.file("model"); }
  std::string target() const { return folder_.file("target"); }
  void change_config(const std::function<void(json&)>& change) const {
    json config = json::parse(contents_of(path() + "/config.json"));
    change(config);
    write_file(path() + "/config.json", config.dump());
  }
  /// The same tensors with others added, changed or left out.
  void change_tensors(
      const std::function<void(std::map<std::string, std::pair<NewTensor, std::vector<float>>>&)>& change) {
    std::map<std::string, std::pair<NewTensor, std::vector<float>>> tensors;
    {
      const SafetensorsModel model(path());
      for (const std::string& name : model.names()) {
        tensors[name] = {{name, model.entry(name).shape}, numbers_of(model, name)};
      }
    }
    change(tensors);
    fs::remove(path() + "/model.safetensors");
    std::vector<NewTensor> list;
    std::vector<std::vector<float>> numbers;
    for (const auto& [name, tensor] : tensors) {
      list.push_back(tensor.first);
      numbers.push_back(tensor.second);
    }
    write_safetensors(path(), list, SafetensorsType::f32, 1 << 30, [&](std::size_t index, std::span<float> to) {
      std::copy(numbers[index].begin(), numbers[index].end(), to.begin());
    });
  }
  void refused(const std::string& part, const ImportOptions& options = {}) const {
    require_error(ErrorKind::checkpoint, {part}, [&] { import_model(path(), target(), options); });
    CHECK_FALSE(fs::exists(target()));
    CHECK_FALSE(fs::exists(folder_.file(".making_target")));
  }

 private:
  TemporaryFolder folder_;
};

void require_round_trip(const std::string& name) {
  const TemporaryFolder folder;
  const ConversionReport imported = import_model(golden(name), folder.file("imported"));
  const json expected = json::parse(contents_of(golden(name) + "/logits.json"));
  REQUIRE(imported.compared.has_value());
  CHECK(imported.compared->tokens == expected.at("tokens").get<std::vector<std::int32_t>>());
  CHECK(imported.compared->largest_difference == 0);
  CHECK(largest_difference(imported.compared->logits, expected.at("logits").get<std::vector<float>>()) < 1e-5);

  export_model(folder.file("imported"), folder.file("exported"), {.max_shard_bytes = 2000});
  const SafetensorsModel before(golden(name)), after(folder.file("exported"));
  CHECK(before.names() == after.names());
  for (const std::string& tensor : before.names()) {
    CAPTURE(tensor);
    CHECK(before.entry(tensor).shape == after.entry(tensor).shape);
    CHECK(numbers_of(before, tensor) == numbers_of(after, tensor));
  }
  CHECK(fs::exists(folder.file("exported/model.safetensors.index.json")));
  // What was exported is what is imported again, out of many files.
  CHECK(import_model(folder.file("exported"), folder.file("again")).compared->logits == imported.compared->logits);
}

}  // namespace

TEST_CASE("GPT-2 as transformers saves it: the same logits, and the same tensors back", "[interop]") {
  require_round_trip("gpt2");
}

// Also before all of Llama can be trained: then what cannot is refused by name.
TEST_CASE("Llama as transformers saves it: the same logits, and the same tensors back", "[interop]") {
  require_round_trip("llama");
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

TEST_CASE("masks that older files keep are no weights, and a tied head must be the table", "[interop]") {
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
  refuse("model_type", "bloom", "\"model_type\" is \"bloom\"");
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

TEST_CASE("a vocabulary smaller than the tables leaves their last rows to the padding", "[interop]") {
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

TEST_CASE("a model that a format has no place for is not written in it", "[interop]") {
  Copy copy("gpt2");
  import_model(copy.path(), copy.target());
  require_error(ErrorKind::configuration, {"llama: model.position_embedding must be \"rope\"", "rmsnorm", "swiglu"},
                [&] { export_model(copy.target(), copy.target() + "_llama", {.format = ForeignFormat::llama}); });
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
