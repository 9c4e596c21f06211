// Loss and every gradient of models with experts against the autograd of transformers
// (scripts/golden/make_expert_golden.py), with both losses of the router: Mixtral, Qwen3-MoE, and Qwen2-MoE with its
// shared experts behind a gate. On one rank and on layouts.
#include "golden/golden_step.h"
#include "golden/interop_models.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Their tensors as our parameters, the padding of the vocabulary zero.
NamedValues as_ours(const std::vector<HuggingFaceTensor>& tensors, const SafetensorsModel& theirs) {
  NamedValues values;
  for (const HuggingFaceTensor& tensor : tensors) {
    REQUIRE(tensor.records.size() == 1);
    REQUIRE_FALSE(tensor.transposed);
    const HuggingFaceTensor::Record& record = tensor.records.front();
    std::vector<float> numbers = numbers_of(theirs, tensor.name);
    numbers.resize(static_cast<std::size_t>(record.global_shape.elements()));
    values[record.name] = std::move(numbers);
  }
  return values;
}

/// [samples][positions] as [positions, samples].
std::vector<int> by_position(const json& texts) {
  std::vector<int> ids;
  for (std::size_t position = 0; position < texts.at(0).size(); ++position) {
    for (const json& text : texts) ids.push_back(text.at(position));
  }
  return ids;
}

struct ExpertGolden {
  Golden golden;
  std::vector<double> terms;
};

ExpertGolden read_expert_golden(const std::string& name) {
  const std::string folder = std::string(MEGATRON_GOLDEN_FOLDER) + "/experts/" + name;
  const json told = json::parse(contents_of(folder + "/loss.json"));
  const HuggingFaceModel imported =
      parse_hugging_face_config(json::parse(contents_of(stored_model(name) + "/config.json")), 1000);
  ExpertGolden result;
  Golden& golden = result.golden;
  golden.config = config_of(imported);
  golden.config.model.moe.balance_coefficient = told.at("balance_coefficient");
  golden.config.model.moe.z_coefficient = told.at("z_coefficient");
  golden.config.train.global_batch_size = static_cast<std::int64_t>(told.at("tokens").size());
  const std::vector<HuggingFaceTensor> tensors =
      hugging_face_tensors(golden.config.model, imported.format, imported.vocab_rows);
  golden.parameters = as_ours(tensors, SafetensorsModel(stored_model(name)));
  golden.gradients = as_ours(tensors, SafetensorsModel(folder));
  double squares = 0;
  for (const auto& [parameter, gradient] : golden.gradients) {
    for (const float number : gradient) squares += double{number} * number;
  }
  golden.gradient_norm = std::sqrt(squares);
  golden.batch.tokens = by_position(told.at("tokens"));
  golden.batch.targets = by_position(told.at("targets"));
  golden.batch.weights.assign(golden.batch.tokens.size(), 1.0f);
  result.terms = {told.at("language_model"), told.at("balance"), told.at("router_z")};
  golden.loss = result.terms[0] + golden.config.model.moe.balance_coefficient * result.terms[1] +
                golden.config.model.moe.z_coefficient * result.terms[2];
  CHECK(told.at("gap").get<double>() > 1e-4);  // no rounding makes another choice
  return result;
}

}  // namespace

TEST_CASE("experts: loss, its terms and every gradient are those of transformers", "[interop]") {
  const std::string name = GENERATE("mixtral", "qwen2_moe", "qwen3_moe");
  const ExpertGolden expected = read_expert_golden(name);
  for (const GoldenLayout& layout : {GoldenLayout{.micro_batch = 4}, GoldenLayout{.tensor = 2, .micro_batch = 2},
                                     GoldenLayout{.data = 2, .micro_batch = 1, .expert = 2},
                                     GoldenLayout{.pipeline = 2, .micro_batch = 2, .recompute = true},
                                     GoldenLayout{.tensor = 2,
                                     .pipeline = 2,
                                     .data = 2,
                                     .micro_batch = 1,
                                     .schedule = "zero_bubble",
                                     .sequence_parallel = true,
                                     .expert = 2}}) {
    INFO(name << ": " << in_words(layout));
    const GoldenStep step = run_golden_step(expected.golden, layout);
    REQUIRE(step.terms.size() == expected.terms.size());
    for (std::size_t i = 0; i < step.terms.size(); ++i) {
      CHECK(step.terms[i] == Approx(expected.terms[i]).epsilon(kGoldenTolerance));
    }
    check_golden_step(expected.golden, step, kGoldenTolerance);
  }
}
