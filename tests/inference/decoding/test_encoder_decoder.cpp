// Text from an encoder-decoder: its encoder reads a prompt once, and each new token sees what was cached of it. The
// numbers are those of the whole model computed anew for each token, on every layout.
#include <cmath>

#include "inference/decoding/generating.h"
#include "support/require_error.h"
#include "support/worst_of.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Change = void (*)(ModelConfig&);

void with_expert_layers(ModelConfig& model) {
  like_t5(model);
  model.decoder_layers = 2;
  with_experts(model);
}

void with_two_groups(ModelConfig& model) {
  like_t5(model);
  model.query_groups = 2;
}

/// Six prompts of 1 to 11 tokens.
std::vector<GenerationJob> encoder_jobs() {
  std::vector<GenerationJob> all;
  for (std::int32_t prompt = 0; prompt < 6; ++prompt) {
    GenerationJob job{.prompt = prompt, .sample = 0, .tokens = {5}};
    for (std::int32_t i = 0; i <= 2 * prompt; ++i) job.encoder_tokens.push_back(12 + (prompt * 7 + i * 3) % 38);
    all.push_back(job);
  }
  return all;
}

GenerationOptions greedy(std::int64_t new_tokens) {
  GenerationOptions options = options_of(60, new_tokens);
  options.sampling.top_k = 1;
  options.log_probabilities = true;
  return options;
}

constexpr std::int64_t kNew = 7;

std::vector<Generated> generate_with(const std::string& run, const Layout& layout, Together together,
                                     const GenerationOptions& options, bool separate = false) {
  return generate_on(run, layout, together, options, encoder_jobs(), nullptr, nullptr, separate, 8);
}

}  // namespace

TEST_CASE("encoder-decoder: cached logits are the uncached ones, at any batch") {
  const auto [name, change] = GENERATE(values<std::pair<const char*, Change>>({{"original", like_t5},
                                                                               {"Megatron", like_megatron_t5},
                                                                               {"groups", with_two_groups},
                                                                               {"experts", with_expert_layers}}));
  CAPTURE(name);
  const TrainedRun run(change);
  const std::vector<GenerationJob> all = encoder_jobs();
  for (const Together together :
       {Together{1, 1}, Together{4, 1}, Together{3, 2}, Together{4, 1, 2}, Together{3, 2, 1}}) {
    CAPTURE(together.samples, together.groups);
    std::vector<std::vector<float>> seen(all.size());
    GenerationOptions options = greedy(kNew);
    options.logits = [&](std::size_t job, std::int64_t place, std::span<const float> logits) {
      CHECK(static_cast<std::size_t>(place) * 50 == seen[job].size());
      seen[job].insert(seen[job].end(), logits.begin(), logits.end());
    };
    const std::vector<Generated> made = generate_with(run.directory, {}, together, options);
    double worst = 0;
    for (std::size_t job = 0; job < all.size(); ++job) {
      REQUIRE(made[job].tokens.size() == kNew);
      CHECK(made[job].ending == Ending::length);
      Tokens text = all[job].tokens;
      text.insert(text.end(), made[job].tokens.begin(), made[job].tokens.end() - 1);
      const std::vector<float> want = uncached(run.directory, std::span(&text, 1), all[job].encoder_tokens)[0];
      REQUIRE(seen[job].size() == want.size());
      for (std::size_t i = 0; i < want.size(); ++i) {
        worst = worst_of(worst, std::abs(double{seen[job][i]} - double{want[i]}));
      }
    }
    CHECK(worst < 1e-5);
  }
  // The encoder's text matters, to its last token.
  const auto logits_of = [&](const Tokens& encoded) {
    return uncached(run.directory, std::span(&all[0].tokens, 1), encoded)[0];
  };
  CHECK(logits_of({20, 21, 22}) != logits_of({20, 21, 23}));
}

TEST_CASE("encoder-decoder: every layout writes the texts of one rank") {
  const TrainedRun run(GENERATE(like_t5, like_megatron_t5));
  const std::vector<Generated> want = generate_with(run.directory, {}, {3, 1}, greedy(kNew));
  for (const Layout& layout :
       {Layout{.tensor = 2}, Layout{.pipeline = 2}, Layout{.tensor = 4}, Layout{.pipeline = 4},
        Layout{.tensor = 2, .pipeline = 4}, Layout{.tensor = 2, .pipeline = 2, .data = 2}, Layout{.data = 3}}) {
    CAPTURE(layout.tensor, layout.pipeline, layout.data);
    check_same(generate_with(run.directory, layout, {2, layout.pipeline}, greedy(kNew)), want);
  }
  check_same(generate_with(run.directory, {.tensor = 2, .pipeline = 2}, {2, 2}, greedy(kNew), /*separate=*/true), want);
}

TEST_CASE("encoder-decoder: guesses change no greedy text, and an end ends it") {
  const TrainedRun run(like_t5);
  const std::vector<Generated> want = generate_with(run.directory, {}, {3, 1}, greedy(kNew));
  GenerationOptions options = greedy(kNew);
  options.speculate = 3;
  check_same(generate_with(run.directory, {}, {3, 1}, options), want);
  options = greedy(kNew);
  options.ends = {want[2].tokens[3]};
  const Generated ended = generate_with(run.directory, {}, {3, 1}, options)[2];
  const auto first = std::find(want[2].tokens.begin(), want[2].tokens.end(), want[2].tokens[3]);
  CHECK(ended.tokens == Tokens(want[2].tokens.begin(), first));
  CHECK(ended.ending == Ending::end_of_document);
}

TEST_CASE("encoder-decoder: beams are those by the definition") {
  const TrainedRun run(GENERATE(like_t5, like_megatron_t5));
  GenerationOptions options = options_of(1, 5);
  options.beams = 3;
  const std::vector<GenerationJob> all = encoder_jobs();
  for (const Layout& layout : {Layout{}, Layout{.tensor = 2, .pipeline = 2}}) {
    const std::vector<Generated> made = generate_with(run.directory, layout, {1, layout.pipeline, 2}, options);
    for (std::size_t job = 0; job < all.size(); ++job) {
      CAPTURE(job);
      const Hypothesis want =
          beams_by_definition(run.directory, all[job].tokens, {3, 1, options.ends}, 5, all[job].encoder_tokens);
      CHECK(made[job].tokens == want.tokens);
      CHECK(made[job].score == Approx(want.score).margin(1e-4));
    }
  }
}

TEST_CASE("encoder-decoder: memory is what the plan says, to the byte") {
  const auto [change, layers] = GENERATE(values<std::pair<Change, std::size_t>>({{like_t5, 1}, {like_megatron_t5, 2}}));
  const TrainedRun run(change);
  const DecoderSizes sizes{.samples = 3,
                           .groups = 2,
                           .capacity = 8,
                           .first_rows = 4,
                           .logits_rows = 6,
                           .reorders = true,
                           .encoder_rows = 11,
                           .encoder_samples = 2};
  std::size_t decoder_layers = 0;
  std::mutex mutex;
  decode(run.directory, {.tensor = 2, .pipeline = 2}, DType::bf16, sizes, false, [&](Decoder& decoder) {
    const DecoderMemory plan =
        plan_decoder(decoder.config(), decoder.grid().shape(), decoder.grid().at(), DType::bf16, sizes);
    std::vector<float> logits;
    decoder.run(0, {1, {Tokens(11, 20), Tokens(9, 21)}, {0, 0}, {0, 0}, Stream::encoder}, logits);
    decoder.run(0, {0, {Tokens(11, 22)}, {0}, {0}, Stream::encoder}, logits);
    decoder.run(0, {0, std::vector<Tokens>(3, {5, 6, 7, 8}), {0, 0, 0}, {4, 1, 1}}, logits);
    const DecoderMemory memory = decoder.memory();
    const std::lock_guard lock(mutex);
    check_as_planned(memory, plan);
    // Lengths of 3 samples; per layer keys and values of 8 + 11 rows of 3 samples, 2 heads of 8: of each group.
    const std::size_t layer = 2 * (8 + 11) * 3 * 2 * 8 * 2;
    decoder_layers += plan.cache / 2 / layer;  // on both tensor ranks
  });
  CHECK(decoder_layers == 2 * layers);
}

TEST_CASE("encoder-decoder: tokens need what their encoder has read") {
  const TrainedRun run(like_t5);
  const DecoderSizes sizes{.capacity = 8, .encoder_rows = 4, .encoder_samples = 1};
  require_error(ErrorKind::internal, {"whose text no encoder has read"}, [&] {
    decode(run.directory, {}, DType::f32, sizes, false, [&](Decoder& decoder) {
      std::vector<float> logits;
      decoder.run(0, {0, {{5}}, {0}, {1}}, logits);
    });
  });
}
