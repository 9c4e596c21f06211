// The benchmark's cases for GPUs: that PyTorch's side trains the same models.
#include <fstream>
#include <sstream>

#include "planning/bench/cases.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("PyTorch trains the same models on the GPU") {
  std::ifstream file(MEGATRON_SOURCE "/scripts/bench/bench_pytorch_gpu.py");
  std::stringstream script;
  script << file.rdbuf();
  int cases = 0;
  for (const Case& benchmark : benchmark_cases()) {
    if (!benchmark.gpu) continue;
    ++cases;
    const ModelConfig& model = benchmark.config.model;
    CHECK_THAT(
        script.str(),
        Contains(fmt::format("\"{}\": dict(layers={}, hidden={}, heads={}, vocab={}, sequence={}, batch={})",
                             benchmark.name, model.layers, model.hidden_size, model.attention_heads,
                             model.padded_vocab(), model.sequence_length, benchmark.config.train.global_batch_size)));
  }
  CHECK(cases == 3);
}
