// Every family that Hugging Face's transformers has with us, in training on ranks under a check of collectives and of
// records: right programs pass, and train what one rank trains.
#include "checkpoint/hugging_face/hugging_face_families.h"
#include "config/parse/parse.h"
#include "config/rules/resolve.h"
#include "golden/interop_models.h"
#include "support/tiny_training.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr int kSteps = 2;

/// The model of an imported checkpoint, with a vocabulary and lengths that made-up samples suit.
Config config_of_import(const std::string& folder, std::vector<std::string> settings, int ranks) {
  settings.insert(settings.end(), {"model.vocab_size=50", "model.vocab_multiple=96", "model.sequence_length=16"});
  Config config = parse_config_text(contents_of(folder + "/model.toml") +
                                        "[train]\nsteps = 2\nglobal_batch_size = 8\nmicro_batch_size = 1\n"
                                        "[data]\ntrain = \"data\"\n",
                                    "model.toml", settings);
  resolve(config, ranks, nullptr);
  return config;
}

}  // namespace

TEST_CASE("every family trains on ranks under a check of collectives", "[interop]") {
  const HuggingFaceFormat format = GENERATE(from_range(hugging_face_formats()));
  CAPTURE(name_of(format));
  const TemporaryFolder folder;
  import_model(stored_model(name_of(format)), folder.file("imported"));
  std::vector<std::string> lengths;
  if (config_of_import(folder.file("imported"), {}, 1).model.has_decoder()) {
    lengths.push_back("model.decoder_sequence_length=12");
  }
  const Config one = config_of_import(folder.file("imported"), lengths, 1);
  const int tensor = one.model.attention_heads % 2 == 0 ? 2 : static_cast<int>(one.model.attention_heads);
  std::vector<std::string> settings = lengths;
  settings.insert(settings.end(), {fmt::format("parallel.tensor={}", tensor), "optimizer.share=state"});
  if (tensor == 2) settings.emplace_back("parallel.sequence_parallel=true");
  if (one.model.moe.experts > 0) settings.emplace_back("parallel.expert=2");
  const Config config = config_of_import(folder.file("imported"), settings, 2 * tensor);
  const TrainingTrace trace = train_tiny(config, tensor, 2, 1, kSteps);
  if (one.model.moe.experts > 0) return;  // rounding may choose other experts
  const TrainingTrace alone = train_tiny(one, 1, 1, 1, kSteps);
  for (std::size_t i = 0; i < kSteps; ++i) CHECK(trace.losses[i] == Approx(alone.losses[i]).epsilon(1e-5));
}
