// BERT against PyTorch's autograd in float64: both terms of the loss and every gradient, with norms before and after
// each part, on one rank and on layouts. The script that made the files compares its formulas with transformers'
// models.
#include <cmath>

#include "golden/golden_step.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("BERT: losses and gradients are PyTorch's on one rank and on layouts") {
  const std::string name = GENERATE("tiny_bert", "tiny_bert_post");
  const Golden golden = read_golden(MEGATRON_GOLDEN_FOLDER "/" + name + ".h5");
  for (const GoldenLayout& layout : std::vector<GoldenLayout>{
           {.micro_batch = 3},
           {},
           {.tensor = 2, .micro_batch = 3},
           {.data = 3},
           {.tensor = 4, .pipeline = 2},
           {.pipeline = 2, .schedule = "zero_bubble"},
           {.tensor = 2, .pipeline = 2, .recompute = true},
       }) {
    INFO(name << ": " << in_words(layout));
    const GoldenStep step = run_golden_step(golden, layout);
    REQUIRE(step.terms.size() == 2);
    CHECK(step.terms[0] == Approx(golden.loss_terms.at(0)).epsilon(kGoldenTolerance));
    CHECK(step.terms[1] == Approx(golden.loss_terms.at(1)).epsilon(kGoldenTolerance));
    check_golden_step(golden, step, kGoldenTolerance);
  }
}

TEST_CASE("BERT: the golden files notice a wrong length and type and label") {
  const Golden golden = read_golden(MEGATRON_GOLDEN_FOLDER "/tiny_bert.h5");
  const auto loss_with = [&](const auto& change) {
    Golden changed = golden;
    change(changed.batch);
    return run_golden_step(changed, {.micro_batch = 3}).terms;
  };
  const auto seeing = loss_with([](GoldenBatch& batch) { ++batch.lengths[1]; });
  CHECK(std::abs(seeing[0] - golden.loss_terms[0]) > 100 * kGoldenTolerance * golden.loss_terms[0]);
  const auto typed = loss_with([](GoldenBatch& batch) { batch.types[3] = 1; });
  CHECK(std::abs(typed[0] - golden.loss_terms[0]) > 100 * kGoldenTolerance * golden.loss_terms[0]);
  const auto labelled = loss_with([](GoldenBatch& batch) { batch.labels[1] = 0; });
  CHECK(labelled[0] == Approx(golden.loss_terms[0]).epsilon(kGoldenTolerance));
  CHECK(std::abs(labelled[1] - golden.loss_terms[1]) > 0.01);
}
