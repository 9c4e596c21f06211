// Greedy texts and beams of a small model that transformers saved, against those of its generate().
// scripts/golden/make_generation_golden.py made them.
#include "golden/evaluation_model.h"
#include "inference/decoding/beam_search.h"
#include "inference/decoding/inference_model.h"
#include "inference/decoding/sampling.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

std::vector<float> last_logits(InferenceModel& model, const Tokens& tokens) {
  std::vector<float> logits;
  model.logits(tokens, static_cast<std::int64_t>(tokens.size()) - 1, logits);
  return logits;
}

Tokens greedy(InferenceModel& model, const json& wanted, std::int32_t end, std::size_t new_tokens) {
  Tokens tokens = wanted.at("prompt");
  const std::size_t first = tokens.size();
  SamplingOptions options;
  options.top_k = 1;
  while (tokens.size() < first + new_tokens) {
    std::vector<float> logits = last_logits(model, tokens);
    penalize_repetition(logits, tokens, wanted.at("penalty"));
    tokens.push_back(sample_token(logits, options, 0.5));
    if (tokens.back() == end) break;
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end()};
}

std::vector<Hypothesis> beams(InferenceModel& model, const json& wanted, std::int32_t end, std::size_t new_tokens) {
  const std::int64_t vocab = model.config().model.vocab_size;
  const Tokens prompt = wanted.at("prompt");
  BeamSearch search({.beams = wanted.at("beams"), .length_penalty = wanted.at("length_penalty"), .ends = {end}});
  std::vector<Tokens> open = {prompt};
  for (std::size_t i = 0; i < new_tokens && !search.done(); ++i) {
    std::vector<float> rows;
    for (const Tokens& tokens : open) {
      const std::vector<float> row = last_logits(model, tokens);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    std::vector<Tokens> next;
    for (const BeamSearch::Choice& choice : search.advance(rows, vocab)) {
      next.push_back(open[static_cast<std::size_t>(choice.beam)]);
      next.back().push_back(choice.token);
    }
    open = std::move(next);
  }
  return search.finish();
}

}  // namespace

TEST_CASE("generation: greedy texts and beams are those of transformers") {
  const EvaluationModel saved;
  const json all = json::parse(contents_of(golden("generation.json")));
  const std::int32_t end = all.at("end");
  const std::size_t new_tokens = all.at("new_tokens");
  REQUIRE(all.at("cases").size() > 30);
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader checkpoint = open_named_checkpoint(world, saved.checkpoint, warnings);
    Config config = config_for_inference(checkpoint);
    config.run.device = "cpu";
    InferenceModel model(config, world, start_compute(config.run, config.precision.dtype(), world, "", 0));
    model.load(world, checkpoint);
    for (const json& wanted : all.at("cases")) {
      CAPTURE(wanted.dump());
      if (wanted.contains("tokens")) {
        CHECK(greedy(model, wanted, end, new_tokens) == wanted.at("tokens").get<Tokens>());
        continue;
      }
      const std::vector<Hypothesis> mine = beams(model, wanted, end, new_tokens);
      REQUIRE(mine.size() == wanted.at("texts").size());
      for (std::size_t i = 0; i < mine.size(); ++i) {
        CHECK(mine[i].tokens == wanted.at("texts")[i].get<Tokens>());
        CHECK(mine[i].score == Approx(wanted.at("scores")[i].get<double>()).epsilon(1e-5));
      }
    }
  });
}
