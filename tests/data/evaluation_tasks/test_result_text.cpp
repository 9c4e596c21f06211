#include "data/evaluation_tasks/result_text.h"
#include "support/catch.h"

namespace megatron::test {
namespace {

TEST_CASE("evaluation results: what applies, as JSON and as a table") {
  EvaluationResult result{.task = "lambada", .examples = 3, .tokens = 7, .loss = 0.5, .accuracy = 2.0 / 3};
  CHECK(result_json(result).dump() ==
        R"({"task":"lambada","examples":3,"tokens":7,"loss":0.5,"perplexity":1.6487212707001282,)"
        R"("accuracy":0.6666666666666666})");
  CHECK(result_table(result_json(result)) ==
        "task                 lambada\n"
        "examples             3\n"
        "tokens               7\n"
        "loss                 0.5\n"
        "perplexity           1.64872\n"
        "accuracy             0.666667\n");
  CHECK(result_line(result) == "loss 0.5, perplexity 1.64872, accuracy 0.666667");
  result.shortened = 2;
  CHECK(result_line(result) == "loss 0.5, perplexity 1.64872, accuracy 0.666667, 2 of 3 contexts lost their beginning");
  result.adjusted_perplexity = 4;
  result.token_ratio = 1.25;
  result.accuracy = {};
  result.accuracy_normalized = 1;
  result.bits_per_byte = 2.5;
  result.bits_per_word = 12;
  CHECK(result_json(result).size() == 10);
  CHECK(result_table(result_json(result))
            .ends_with("adjusted perplexity  4\ntoken ratio          1.25\n"
                       "bits per byte        2.5\nbits per word        12\naccuracy normalized  1\n"));
}

}  // namespace
}  // namespace megatron::test
