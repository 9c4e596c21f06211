// The report on a bad step names the first and the last bad tensor in the order of the forward pass, whichever stages
// hold them and in whatever order they are declared there.
#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "models/families/family.h"
#include "support/catch.h"
#include "training/diagnostics/non_finite_report.h"
#include "training/step/grid.h"
#include "training/step/memory_layout.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Reports on the pairs of names, of which both have a gradient with a NaN on every rank that holds them.
class Reports {
 public:
  explicit Reports(const Config& config) : config_(config) {}

  std::string of(const std::string& first, const std::string& second) const {
    std::string told;
    const GridShape shape = grid_shape(config_);
    run_as_threads(shape.ranks(), [&](Communicator& world) {
      const ProcessGrid grid(world, shape);
      Backend backend = make_cpu_backend();
      const TensorRegion region(grid, config_.parallel.sequence_parallel);
      ParameterStore store;
      const Stages stages = make_stages(config_, grid, region, store);
      store.allocate(*backend.device, DType::f32);
      backend.ops->fill(store.gradients(), 0);
      std::vector<ParameterPart> parts;
      for (const Parameter& parameter : store.all()) {
        if (parameter.name == first || parameter.name == second) parameter.gradient.as<float>()[0] = std::nanf("");
        parts.push_back({&parameter, parameter.gradient});
      }
      NonFiniteReport mine;
      mine.gradients = mine.replayed_gradients = find_bad_tensors(parts, *backend.device);
      const std::string text = describe_non_finite_step(grid, mine);
      if (world.rank() == 0) told = text;
    });
    return told;
  }

 private:
  Config config_;
};

/// Every pair of the names, which are in the order of the forward pass.
void check_order(const Config& config, const std::vector<std::string>& names) {
  const Reports reports(config);
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (std::size_t j = i + 1; j < names.size(); ++j) {
      CAPTURE(config.parallel.pipeline, names[i], names[j]);
      CHECK_THAT(reports.of(names[i], names[j]),
                 Contains("from " + names[i] + " on rank ") && Contains(" to " + names[j] + " on rank "));
    }
  }
}

}  // namespace

TEST_CASE("non-finite report: T5's encoder comes before its decoder") {
  for (const int pipeline : {1, 2, 4}) {
    const Config config = config_of({.pipeline = pipeline, .variant = like_t5});
    check_order(config,
                {"embedding.word.weight", "encoder.layers.0.attention_norm.weight", "encoder.layers.2.mlp.down.weight",
                 "encoder.final_norm.weight", "relative.decoder.weight", "decoder.layers.0.attention_norm.weight",
                 "decoder.layers.0.mlp.down.weight", "final_norm.weight"});
  }
}

TEST_CASE("non-finite report: chunks of virtual stages are in the model's order") {
  Config config = config_of({.pipeline = 2, .schedule = "interleaved", .virtual_stages = 2});
  config.model.tie_embeddings = false;  // else the last stage has a bad copy of the table as well
  check_order(config, {"embedding.word.weight", "embedding.position.weight", "layers.0.mlp.down.weight",
                       "layers.1.attention_norm.weight", "layers.2.attention_norm.weight",
                       "layers.3.attention_norm.weight", "head.weight", "final_norm.weight"});
}
