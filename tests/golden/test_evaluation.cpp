// Evaluation tasks on a small model that transformers saved, against what it computes.
// scripts/oracles/evaluation_oracle.py is the definition, scripts/golden/make_evaluation_golden.py made the files.
#include "backend/ops/backends.h"
#include "data/evaluation_tasks/result_text.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "golden/evaluation_model.h"
#include "inference/decoding/scorer.h"
#include "support/catch.h"
#include "training/datasets/evaluation_tasks.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using nlohmann::json;

nlohmann::ordered_json evaluate(const std::string& checkpoint_path, const json& wanted, const ScoringLayout& layout) {
  const std::string text = contents_of(golden("evaluation/" + wanted.at("data").get<std::string>()));
  nlohmann::ordered_json result;
  run_as_threads(layout.ranks, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader checkpoint = open_named_checkpoint(world, checkpoint_path, warnings);
    Config config = config_for_scoring(checkpoint, layout);
    config.run.device = "cpu";
    const auto tokenizer = make_tokenizer({"gpt2", golden("bpe/vocab.json"), golden("bpe/merges.txt")});
    const auto encoder = tokenizer->make_encoder();
    TaskInput input{.path = "golden",
                    .text = text,
                    .context = config.model.sequence_length,
                    .before = tokenizer->eod_id(),
                    .stride = {},
                    .whole_word = wanted.value("strict", false),
                    .encode = [&](std::string_view start, std::string_view target) {
                      return encode_pair(*encoder, start, target);
                    }};
    if (wanted.contains("stride") && !wanted.at("stride").is_null()) input.stride = wanted.at("stride");
    const auto task = task_kind(wanted.at("result").at("task").get<std::string>()).make(input);
    Backend backend = make_cpu_backend();
    const ProcessGrid grid(world, grid_shape(config));
    Scorer scorer(config, grid, backend, config.model.sequence_length);
    scorer.load(checkpoint);
    const EvaluationResult mine = task->result(scorer.score(task->sequences()));
    if (world.rank() == 0) result = result_json(mine);
  });
  return result;
}

}  // namespace

TEST_CASE("evaluation: every task has transformers' counts, loss and accuracy") {
  const EvaluationModel saved;
  const json cases = json::parse(contents_of(golden("evaluation/results.json")));
  REQUIRE(cases.size() == 6);
  for (const json& wanted : cases) {
    CAPTURE(wanted.dump());
    for (const ScoringLayout& layout : {ScoringLayout{1, 1, 1, 4}, ScoringLayout{8, 2, 2, 3}}) {
      const nlohmann::ordered_json mine = evaluate(saved.checkpoint, wanted, layout);
      const json& theirs = wanted.at("result");
      CAPTURE(mine.dump());
      REQUIRE(mine.size() == theirs.size());
      for (const auto& [key, value] : theirs.items()) {
        CAPTURE(key);
        const auto& own = mine.at(key);
        if (value.is_string()) {
          CHECK(own.get<std::string>() == value.get<std::string>());
        } else if (key.find("perplexity") != std::string::npos) {
          CHECK(own.get<double>() == Approx(value.get<double>()).epsilon(1e-4));
        } else {
          CHECK(own.get<double>() == Approx(value.get<double>()).margin(1e-5).epsilon(0));
        }
      }
    }
  }
}
