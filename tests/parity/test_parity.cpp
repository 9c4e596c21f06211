// The heart of the tests: the same model, dropout on, on every layout. Promises of design section 5: losses and norms
// of some steps within 1e-5 of one rank, every reassembled gradient of step 1 within 5e-5; the same layout twice, and
// GPipe against 1F1B, bit for bit.
#include <catch2/catch.hpp>
#include <cmath>

#include "support/tiny_training.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const TrainingTrace& one_rank() {
  static const TrainingTrace trace = train_tiny(tiny_config(), 1, 1, 1);
  return trace;
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

void require_parity(const TrainingTrace& trace, const TrainingTrace& reference = one_rank()) {
  REQUIRE(trace.losses.size() == reference.losses.size());
  for (std::size_t i = 0; i < reference.losses.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(trace.losses[i] == Approx(reference.losses[i]).epsilon(1e-5));
    CHECK(trace.norms[i] == Approx(reference.norms[i]).epsilon(1e-5));
  }
  REQUIRE(trace.gradients.size() == reference.gradients.size());
  for (const auto& [name, gradient] : reference.gradients) {
    INFO(name);
    REQUIRE(trace.gradients.count(name) == 1);
    double scale = 1;
    if (name.ends_with("key.bias")) {
      // Zero in exact arithmetic: judged by the size of the query bias' gradient.
      std::string query = name;
      query.replace(query.find("key.bias"), 8, "query.bias");
      scale = norm_of(gradient) / norm_of(reference.gradients.at(query));
    }
    CHECK(scale * relative_difference(trace.gradients.at(name), gradient) <= 5e-5);
  }
}

void require_identical(const TrainingTrace& a, const TrainingTrace& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.norms == b.norms);
  CHECK(a.gradients == b.gradients);
  CHECK(a.parameters == b.parameters);
}

}  // namespace

TEST_CASE("one rank learns: the loss of five steps on random tokens starts near ln(vocabulary) and moves") {
  const TrainingTrace& trace = one_rank();
  CHECK(trace.losses[0] == Approx(std::log(50.0)).epsilon(0.05));
  CHECK(trace.losses[0] != trace.losses[1]);
  CHECK(trace.gradients.size() == 2 + 4 * 16 + 2);
}

TEST_CASE("every layout trains the model that one rank trains") {
  struct Layout {
    int tensor, data, pipeline, micro_batch;
    bool sequence_parallel;
  };
  const Layout layout = GENERATE(Layout{2, 1, 1, 1, false}, Layout{4, 1, 1, 1, false}, Layout{1, 2, 1, 1, false},
                                 Layout{1, 4, 1, 1, false}, Layout{1, 1, 2, 1, false}, Layout{1, 1, 4, 1, false},
                                 Layout{2, 2, 2, 1, false}, Layout{1, 1, 1, 2, false}, Layout{1, 1, 1, 4, false},
                                 Layout{1, 1, 1, 8, false}, Layout{2, 2, 2, 2, false}, Layout{2, 1, 1, 2, true},
                                 Layout{4, 1, 2, 1, true}, Layout{2, 2, 2, 1, true});
  INFO("tensor " << layout.tensor << " data " << layout.data << " pipeline " << layout.pipeline << " micro-batch "
                 << layout.micro_batch << " sequence parallel " << layout.sequence_parallel);
  Config config = tiny_config();
  config.train.micro_batch_size = layout.micro_batch;
  config.parallel.sequence_parallel = layout.sequence_parallel;
  require_parity(train_tiny(config, layout.tensor, layout.data, layout.pipeline));
}

TEST_CASE("several threads a rank train the same model, and bit-identically with the same number") {
  // Wide enough that products, norms and the rest are worth cutting up.
  Config config = tiny_config();
  config.model.hidden_size = 128;
  config.model.ffn_hidden_size = 512;
  config.model.sequence_length = config.model.max_position_embeddings = 64;
  config.train.micro_batch_size = 2;
  const TrainingTrace one = train_tiny(config, 1, 1, 1, 3);
  config.run.threads = 2;
  const TrainingTrace two = train_tiny(config, 1, 1, 1, 3);
  require_parity(two, one);
  require_identical(train_tiny(config, 1, 1, 1, 3), two);
  require_parity(train_tiny(config, 2, 1, 1, 3), one);
  config.run.threads = 3;
  require_parity(train_tiny(config, 1, 1, 2, 3), one);
}

TEST_CASE("uneven stages train the same model") {
  Config config = tiny_config();
  config.parallel.layers_per_stage = {1, 3};
  require_parity(train_tiny(config, 1, 1, 2));
  config.parallel.layers_per_stage = {0, 3, 1, 0};
  require_parity(train_tiny(config, 1, 1, 4));
}

TEST_CASE("GPipe and 1F1B are bit-identical, and so is a layout to itself") {
  Config config = tiny_config();
  const TrainingTrace first = train_tiny(config, 2, 1, 2);
  require_identical(train_tiny(config, 2, 1, 2), first);
  config.parallel.schedule = "gpipe";
  require_identical(train_tiny(config, 2, 1, 2), first);
}

TEST_CASE("sums under the backward are the bits of sums behind it") {
  struct Layout {
    int tensor, data, pipeline;
    bool sequence_parallel;
  };
  const Layout layout = GENERATE(Layout{1, 2, 1, false}, Layout{2, 2, 1, true}, Layout{1, 2, 2, false});
  INFO("tensor " << layout.tensor << " data " << layout.data << " pipeline " << layout.pipeline);
  Config config = tiny_config();
  config.model.hidden_size = 512;  // a layer is most of a bucket: there is something to start early
  config.model.ffn_hidden_size = 2048;
  config.parallel.sequence_parallel = layout.sequence_parallel;
  const auto train = [&](bool overlap) {
    config.parallel.overlap_gradients = overlap;
    return train_tiny(config, layout.tensor, layout.data, layout.pipeline, 2);
  };
  require_identical(train(true), train(false));
}

TEST_CASE("dropout is on in these tests: without it the losses are others") {
  Config config = tiny_config();
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  CHECK(train_tiny(config, 1, 1, 1).losses[0] != one_rank().losses[0]);
}
