// Numbers that an export or an import cannot take for granted: what is no number, and what a narrow type cannot hold.
#include <cmath>

#include "checkpoint/hugging_face/hugging_face.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const nlohmann::json kConfig = {{"model_type", "gpt2"}, {"vocab_size", 8}, {"n_embd", 4},
                                {"n_layer", 1},         {"n_head", 2},     {"n_positions", 4}};

using Number = std::function<float(const std::string& tensor, std::size_t element)>;

float ordinary(const std::string& tensor, std::size_t element) {
  return tensor.ends_with("norm.weight") || tensor.ends_with("ln_f.weight") ? 1.0f
                                                                            : 0.01f * static_cast<float>(element + 1);
}

/// A tiny GPT-2 as Hugging Face keeps it, its tied head written as well.
void write_model(const std::string& folder, const Number& number) {
  std::filesystem::create_directories(folder);
  const HuggingFaceModel imported = parse_hugging_face_config(kConfig, 100);
  std::vector<NewTensor> list;
  for (const HuggingFaceTensor& tensor :
       hugging_face_tensors(config_of(imported).model, imported.format, imported.vocab_rows)) {
    list.push_back({tensor.name, tensor.shape});
  }
  list.push_back({"lm_head.weight", list.front().shape});
  write_safetensors(folder, list, SafetensorsType::f32, 1 << 20, [&](std::size_t index, std::span<float> numbers) {
    const std::string& name = index + 1 < list.size() ? list[index].name : list.front().name;
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number(name, i);
  });
  write_file(folder + "/config.json", kConfig.dump());
}

void alone(const std::function<void(Communicator& world)>& work) {
  run_as_threads(1, work);
}

CheckpointReader open(Communicator& world, const std::string& path) {
  std::vector<std::string> warnings;
  return open_named_checkpoint(world, path, warnings);
}

}  // namespace

TEST_CASE("import: a model with NaN is converted exactly and reported", "[train]") {
  const TemporaryFolder folder;
  write_model(folder.file("theirs"), [](const std::string& tensor, std::size_t element) {
    const bool broken =
        (tensor == "transformer.wte.weight" && element == 5) || (tensor == "transformer.ln_f.bias" && element == 0);
    return broken ? std::nanf("") : ordinary(tensor, element);
  });
  alone([&](Communicator& world) {
    const ConversionReport imported = import_checkpoint(folder.file("theirs"), folder.file("ours"), world, {});
    CHECK(imported.compared->not_numbers > 0);
    CHECK(imported.compared->differing == 0);
    CHECK(imported.compared->largest_difference == 0);
    const ConversionReport exported =
        export_checkpoint(open(world, folder.file("ours")), folder.file("again"), world, {});
    CHECK(exported.compared->not_numbers == imported.compared->not_numbers);
    CHECK(exported.compared->differing == 0);
  });
}

TEST_CASE("export: a type too narrow for a number is refused with the tensor", "[train]") {
  const TemporaryFolder folder;
  write_model(folder.file("theirs"), [](const std::string& tensor, std::size_t element) {
    const bool large = tensor == "transformer.h.0.mlp.c_fc.bias" && element < 2;
    return large ? 65520.0f * static_cast<float>(element + 1) : ordinary(tensor, element);  // 65519 is the last to fit
  });
  alone([&](Communicator& world) {
    import_checkpoint(folder.file("theirs"), folder.file("ours"), world, {});
    const CheckpointReader source = open(world, folder.file("ours"));
    ExportOptions options;
    options.type = SafetensorsType::f16;
    require_error(ErrorKind::configuration,
                  {"transformer.h.0.mlp.c_fc.bias", "2 of its 16 numbers", "fp16", "1.3104e+05"},
                  [&] { export_checkpoint(source, folder.file("fp16"), world, options); });
    CHECK_FALSE(std::filesystem::exists(folder.file("fp16")));
    options.type = SafetensorsType::bf16;
    CHECK(export_checkpoint(source, folder.file("bf16"), world, options).files == 1);
  });
}

TEST_CASE("numbers that are infinite themselves are written in every type", "[train]") {
  const TemporaryFolder folder;
  const auto type = GENERATE(SafetensorsType::f16, SafetensorsType::bf16);
  write_safetensors(folder.path(), {{"a", {2}}}, type, 100, [](std::size_t, std::span<float> numbers) {
    numbers[0] = INFINITY;
    numbers[1] = -INFINITY;
  });
  std::vector<float> numbers(2);
  SafetensorsModel(folder.path()).read("a", 0, numbers);
  CHECK(numbers == std::vector<float>{INFINITY, -INFINITY});
}
