// Text from a decoder: that of a model without a cache; batches, layouts and guesses change none of it.
#include "inference/decoding/generate.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "inference/decoding/generating.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::vector<GenerationJob> decoder_jobs() {
  std::vector<GenerationJob> all;
  for (std::int32_t prompt = 0; prompt < 6; ++prompt) {
    GenerationJob job{.prompt = prompt, .sample = prompt % 2, .tokens = {}};
    for (std::int32_t i = 0; i <= prompt; ++i) job.tokens.push_back((prompt * 7 + i * 3) % 50);
    all.push_back(job);
  }
  return all;
}

/// All (tensor, pipeline, data) of up to 8 ranks that the tiny model divides into.
std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const int tensor : {1, 2, 4}) {
    for (const int pipeline : {1, 2, 4}) {
      for (const int data : {1, 2, 3, 4, 8}) {
        if (tensor * pipeline * data <= 8) all.push_back({tensor, pipeline, data});
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("generate: greedy text is that of a model without a cache, at any batch") {
  const TrainedRun run(GENERATE(values<void (*)(ModelConfig&)>({nullptr, like_llama, with_one_group, with_window})));
  GenerationOptions options = options_of(60, 9);
  options.sampling.top_k = 1;
  for (const Together together : {Together{1, 1}, Together{2, 1}, Together{4, 2}, Together{3, 3}}) {
    CAPTURE(together.samples, together.groups);
    const auto made = generate_on(run.directory, {}, together, options, decoder_jobs());
    for (std::size_t i = 0; i < made.size(); ++i) {
      CHECK(made[i].tokens == greedy_by_definition(run.directory, decoder_jobs()[i].tokens, 9));
      CHECK(made[i].ending == Ending::length);
    }
  }
}

TEST_CASE("generate: layouts change no text even where contexts are full") {
  const TrainedRun run(like_llama);
  GenerationOptions options = options_of(49, 25);  // past the context of 16: it is cut twice
  options.log_probabilities = true;
  options.likeliest = 3;
  options.sampling.top_k = GENERATE(1, 0);
  options.sampling.repetition_penalty = 1.1;
  const auto want = generate_on(run.directory, {}, {1, 1}, options, decoder_jobs());
  std::size_t tokens = 0;
  for (const Generated& text : want) {
    CHECK(text.ending != Ending::none);
    CHECK(text.likeliest.size() == text.tokens.size());
    tokens += text.tokens.size();
  }
  CHECK(tokens > 60);
  check_same(generate_on(run.directory, {}, {4, 1}, options, decoder_jobs()), want);
  for (const Layout& layout : layouts()) {
    CAPTURE(layout.tensor, layout.pipeline, layout.data);
    check_same(generate_on(run.directory, layout, {2, layout.pipeline}, options, decoder_jobs()), want);
  }
  check_same(generate_on(run.directory, {.pipeline = 4}, {1, 6}, options, decoder_jobs()), want);
  check_same(generate_on(run.directory, {.pipeline = 2}, {3, 1}, options, decoder_jobs()), want);
}

TEST_CASE("generate: a separate device changes no text, on several stages either") {
  const TrainedRun run;
  const GenerationOptions options = options_of(49, 6);
  const auto want = generate_on(run.directory, {}, {2, 1}, options, decoder_jobs());
  for (const Layout& layout : {Layout{}, Layout{.pipeline = 2}, Layout{.tensor = 2, .pipeline = 2}}) {
    CAPTURE(layout.tensor, layout.pipeline);
    check_same(
        generate_on(run.directory, layout, {2, layout.pipeline}, options, decoder_jobs(), nullptr, nullptr, true),
        want);
  }
}

TEST_CASE("generate: the order of jobs changes no text") {
  const TrainedRun run;
  const GenerationOptions options = options_of(49, 12);
  const auto want = generate_on(run.directory, {}, {2, 1}, options, decoder_jobs());
  std::vector<GenerationJob> reversed = decoder_jobs();
  std::reverse(reversed.begin(), reversed.end());
  auto got = generate_on(run.directory, {}, {4, 1}, options, reversed);
  std::reverse(got.begin(), got.end());
  check_same(got, want);
}

TEST_CASE("generate: guessed tokens change no text, and save passes") {
  const TrainedRun run;
  GenerationOptions options = options_of(49, 30);
  options.log_probabilities = true;
  // Penalties, and draws at a low temperature: a guess is right where it is what would have been chosen.
  options.sampling.top_k = GENERATE(1, 0);
  options.sampling.temperature = 0.2;
  const auto polls = [&](const Layout& layout, Together together, std::vector<Generated>& made) {
    std::mutex mutex;
    int count = 0;
    options.stop = [&] {
      const std::lock_guard lock(mutex);
      ++count;
      return false;
    };
    made = generate_on(run.directory, layout, together, options, decoder_jobs());
    return count;
  };
  std::vector<Generated> want, got;
  const int passes = polls({}, {1, 1}, want);
  for (const std::int64_t guesses : {1, 4, 7}) {
    CAPTURE(guesses);
    options.speculate = guesses;
    const int fewer = polls({}, {1, 1}, got);
    check_same(got, want);
    CHECK(fewer < passes);
    polls({.tensor = 2, .pipeline = 2}, {2, 2}, got);
    check_same(got, want);
  }
}

TEST_CASE("generate: beams are those by the definition, on every layout") {
  const TrainedRun run(like_llama);
  GenerationOptions options = options_of(49, 8);
  options.length_penalty = GENERATE(0, 1.3);
  options.beams = 4;
  const auto want = generate_on(run.directory, {}, {1, 1}, options, decoder_jobs());
  for (std::size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    const Hypothesis best =
        beams_by_definition(run.directory, decoder_jobs()[i].tokens, {4, options.length_penalty, options.ends}, 8);
    CHECK(want[i].tokens == best.tokens);
    CHECK(want[i].score == Approx(best.score).margin(1e-4));
    CHECK(want[i].ending == (best.finished ? Ending::end_of_document : Ending::length));
  }
  for (const Layout& layout : layouts()) {
    CAPTURE(layout.tensor, layout.pipeline, layout.data);
    check_same(generate_on(run.directory, layout, {1, layout.pipeline}, options, decoder_jobs()), want);
  }
  options.beams = 60;  // more than the vocabulary has
  options.sampling.max_new_tokens = 3;
  check_same(generate_on(run.directory, {.pipeline = 2}, {1, 1}, options, decoder_jobs()),
             generate_on(run.directory, {}, {1, 2}, options, decoder_jobs()));
}

TEST_CASE("generate: log-probabilities and likeliest new tokens are the model's") {
  const TrainedRun run;
  GenerationOptions options = options_of(60, 6);
  options.log_probabilities = true;
  options.likeliest = 4;
  options.sampling.temperature = 2;
  options.sampling.repetition_penalty = 1.5;
  std::vector<std::vector<float>> rows;
  options.logits = [&](std::size_t job, std::int64_t place, std::span<const float> logits) {
    if (job != 3) return;
    CHECK(place == static_cast<std::int64_t>(rows.size()));
    rows.emplace_back(logits.begin(), logits.end());
  };
  const Generated made = generate_on(run.directory, {}, {2, 1}, options, decoder_jobs())[3];
  Tokens text = decoder_jobs()[3].tokens;
  const std::size_t prompt = text.size();
  text.insert(text.end(), made.tokens.begin(), made.tokens.end());
  const std::vector<float> logits = uncached(run.directory, std::span(&text, 1))[0];
  REQUIRE(made.tokens.size() == 6);
  REQUIRE(made.log_probabilities.size() == 6);
  REQUIRE(made.likeliest.size() == 6);
  REQUIRE(rows.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    const std::span<const float> row(&logits[(prompt + i - 1) * 50], 50);
    for (std::size_t j = 0; j < 50; ++j) CHECK(rows[i][j] == Approx(row[j]).margin(1e-5));
    CHECK(made.log_probabilities[i] ==
          Approx(row[static_cast<std::size_t>(made.tokens[i])] - log_sum_exp(row)).margin(1e-5));
    const auto likeliest = likeliest_tokens(row, 4);
    for (std::size_t j = 0; j < 4; ++j) CHECK(made.likeliest[i][j].token == likeliest[j].token);
  }
}

TEST_CASE("generate: without new tokens a prompt is scored on every layout") {
  const TrainedRun run(with_one_group);
  GenerationOptions options = options_of(49, 0);
  options.log_probabilities = true;
  options.likeliest = 2;
  std::vector<GenerationJob> all = decoder_jobs();
  all[5].tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};  // the whole context
  const auto want = generate_on(run.directory, {}, {1, 1}, options, all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    const Tokens& prompt = all[i].tokens;
    const std::vector<float> logits = uncached(run.directory, std::span(&prompt, 1))[0];
    CHECK(want[i].tokens.empty());
    CHECK(want[i].ending == Ending::length);
    REQUIRE(want[i].log_probabilities.size() == prompt.size() - 1);
    REQUIRE(want[i].likeliest.size() == prompt.size() - 1);
    for (std::size_t j = 0; j + 1 < prompt.size(); ++j) {
      const std::span<const float> row(&logits[j * 50], 50);
      CHECK(want[i].log_probabilities[j] ==
            Approx(row[static_cast<std::size_t>(prompt[j + 1])] - log_sum_exp(row)).margin(1e-5));
      CHECK(want[i].likeliest[j][0].token == likeliest_tokens(row, 1)[0].token);
    }
  }
  for (const Layout& layout : {Layout{1, 1, 1}, Layout{2, 2, 2}, Layout{1, 4, 1}, Layout{1, 1, 8}}) {
    CAPTURE(layout.tensor, layout.pipeline, layout.data);
    check_same(generate_on(run.directory, layout, {40, 2}, options, all), want);  // in passes of three tokens
  }
  options.log_probabilities = false;
  options.likeliest = 0;
  for (const Generated& text : generate_on(run.directory, {}, {2, 1}, options, all)) {
    CHECK(text.ending == Ending::length);
    CHECK(text.log_probabilities.empty());
  }
}

TEST_CASE("generate: each of several tokens ends a text, sampled or in beams") {
  const TrainedRun run;
  const auto want = generate_on(run.directory, {}, {2, 1}, options_of(60, 12), decoder_jobs());
  for (const std::size_t place : {2u, 5u}) {
    GenerationOptions options = options_of(60, 12);
    options.ends.push_back(want[1].tokens[place]);
    const auto ended = generate_on(run.directory, {}, {2, 1}, options, decoder_jobs());
    const auto stop = std::find(want[1].tokens.begin(), want[1].tokens.end(), want[1].tokens[place]);
    CHECK(ended[1].tokens == Tokens(want[1].tokens.begin(), stop));
    CHECK(ended[1].ending == Ending::end_of_document);
  }
  GenerationOptions beams = options_of(60, 8);
  beams.beams = 3;
  const auto whole = generate_on(run.directory, {}, {3, 1}, beams, {decoder_jobs()[0]});
  beams.ends.push_back(whole[0].tokens[3]);
  const auto ended = generate_on(run.directory, {}, {3, 1}, beams, {decoder_jobs()[0]});
  CHECK(std::find(ended[0].tokens.begin(), ended[0].tokens.end(), beams.ends[1]) == ended[0].tokens.end());
}

TEST_CASE("generate: stop texts end a job and a request to stop keeps its tokens") {
  const TrainedRun run;
  GenerationOptions options = options_of(60, 12);
  const auto want = generate_on(run.directory, {}, {2, 1}, options, decoder_jobs());
  std::vector<Tokens> told(6);
  const auto stopped = generate_on(
      run.directory, {.pipeline = 2}, {2, 2}, options, decoder_jobs(),
      [&](std::size_t job, std::int32_t token) { return job == 2 && token == want[2].tokens[4]; }, nullptr);
  const auto stop = std::find(want[2].tokens.begin(), want[2].tokens.end(), want[2].tokens[4]);
  CHECK(stopped[2].tokens == Tokens(want[2].tokens.begin(), stop + 1));
  CHECK(stopped[2].ending == Ending::stop_text);
  CHECK(stopped[3].tokens == want[3].tokens);
  generate_on(run.directory, {}, {3, 1}, options, decoder_jobs(), nullptr,
              [&](std::size_t job, std::int32_t token) { told[job].push_back(token); });
  for (std::size_t i = 0; i < 6; ++i) CHECK(told[i] == want[i].tokens);

  for (const Layout& layout : {Layout{}, Layout{.tensor = 2, .pipeline = 2}}) {
    std::atomic<int> asked = 0;
    options.stop = [&] { return ++asked == 6 * layout.ranks(); };  // one rank alone hears of it, about round six
    const auto cut = generate_on(run.directory, layout, {6, 1}, options, decoder_jobs());
    for (std::size_t i = 0; i < 6; ++i) {
      CHECK(cut[i].ending == Ending::none);
      CHECK(cut[i].tokens.size() >= 4);
      CHECK(cut[i].tokens.size() <= 8);
      CHECK(std::equal(cut[i].tokens.begin(), cut[i].tokens.end(), want[i].tokens.begin()));
    }
  }
}

TEST_CASE("generate: what does not fit into the context is refused by name") {
  GenerationOptions options;
  options.sampling.max_new_tokens = 10;
  std::vector<GenerationJob> all = {{.tokens = Tokens(8, 1)}};
  CHECK(sizes_for(all, options, kContext, 1, 1).capacity == 16);  // it is cut
  options.beams = 2;
  require_error(ErrorKind::configuration, {"8 tokens", "17", "context of 16"},
                [&] { sizes_for(all, options, kContext, 1, 1); });
  options.sampling.max_new_tokens = 9;
  CHECK(sizes_for(all, options, kContext, 1, 1).capacity == 16);
  options.beams = 0;
  options.sampling.max_new_tokens = 0;
  all[0].tokens.resize(17);
  require_error(ErrorKind::configuration, {"17 tokens", "context of 16"},
                [&] { sizes_for(all, options, kContext, 1, 1); });
}
