// Decoding with a cache: the logits of a model without one, for every kind of position and group, and on every layout.
#include "inference/decoding/decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "inference/decoding/decoding.h"
#include "support/catch.h"
#include "support/worst_of.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const std::vector<Tokens> kTexts = {
    {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}, {2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4}, {1, 6, 1, 8, 0, 3, 3}};
constexpr DecoderSizes kSizes{.samples = 3, .groups = 2, .capacity = 12, .first_rows = 5, .logits_rows = 8};

/// Compares what a decoder gives of kTexts with the logits of a model without a cache.
class Comparison {
 public:
  /// `want`: by text, after each of its tokens.
  Comparison(const std::vector<std::vector<float>>& want, Decoder& decoder) : want_(want), decoder_(decoder) {}
  double worst() const { return worst_; }
  std::size_t compared() const { return compared_; }

  /// The next `counts` tokens of the samples from `first` on, with logits of the last `wanted` of each.
  void pass(std::int64_t group, std::int64_t first, const std::vector<std::int64_t>& counts,
            const std::vector<std::int64_t>& wanted) {
    DecoderPass pass{.first_sample = first, .tokens = {}, .offsets = {}, .wanted = wanted};
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const auto sample = static_cast<std::size_t>(first) + i;
      const auto from = kTexts[sample].begin() + done_[sample];
      pass.tokens.emplace_back(from, from + counts[i]);
      pass.offsets.push_back(static_cast<std::int32_t>(done_[sample]));
      done_[sample] += counts[i];
    }
    decoder_.run(group, pass, logits_);
    if (!decoder_.samples_here()) return;
    const auto vocab = static_cast<std::size_t>(decoder_.config().model.vocab_size);
    std::size_t at = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const auto sample = static_cast<std::size_t>(first) + i;
      for (std::int64_t row = done_[sample] - wanted[i]; row < done_[sample]; ++row) {
        for (std::size_t j = 0; j < vocab; ++j, ++at) {
          const double expected = want_[sample][static_cast<std::size_t>(row) * vocab + j];
          worst_ = worst_of(worst_, at < logits_.size() ? std::abs(logits_[at] - expected) : HUGE_VAL);
        }
        ++compared_;
      }
    }
    if (at != logits_.size()) worst_ = HUGE_VAL;
  }

  /// All of the texts: beginnings of different lengths at once, then more of some, then one token after the other.
  void texts(std::int64_t group) {
    done_ = {0, 0, 0};
    pass(group, 0, {5, 1, 3}, {4, 1, 2});
    pass(group, 1, {3, 1}, {3, 1});
    pass(group, 0, {1}, {0});
    pass(group, 0, {1, 1, 1}, {1, 1, 1});
    pass(group, 2, {2}, {2});
    done_[2] -= 3;  // wrong guesses are written over
    pass(group, 0, {2, 1, 1}, {1, 1, 1});
    while (done_[0] < 12) {
      for (const std::size_t sample : {1, 2}) {  // at its end a text repeats its last token
        done_[sample] = std::min(done_[sample], static_cast<std::int64_t>(kTexts[sample].size()) - 1);
      }
      pass(group, 0, {1, 1, 1}, {1, 1, 1});
    }
    done_[1] = 8;
    pass(group, 1, {3}, {3});
  }

 private:
  const std::vector<std::vector<float>>& want_;
  Decoder& decoder_;
  std::vector<float> logits_;
  std::array<std::int64_t, 3> done_{};
  double worst_ = 0;
  std::size_t compared_ = 0;
};

/// The worst difference from uncached logits, over ragged texts in both groups of a decoder.
double worst_difference(const std::string& run, const Layout& layout, DType type, bool separate = false) {
  const std::vector<std::vector<float>> want = uncached(run, kTexts);
  double worst = 0;
  std::size_t compared = 0;
  std::mutex mutex;
  decode(run, layout, type, kSizes, separate, [&](Decoder& decoder) {
    Comparison comparison(want, decoder);
    for (const std::int64_t group : {1, 0}) comparison.texts(group);
    const std::lock_guard lock(mutex);
    worst = worst_of(worst, comparison.worst());
    compared += comparison.compared();
  });
  CHECK(compared == static_cast<std::size_t>(layout.data) * 2 * 31);
  return worst;
}

}  // namespace

TEST_CASE("decoder: cached logits are the uncached ones in every kind of model") {
  using Case = std::pair<const char*, void (*)(ModelConfig&)>;
  const auto [name, change] =
      GENERATE(values<Case>({{"learned", nullptr},
                             {"rope, two groups", like_llama},
                             {"alibi, one group", with_one_group},
                             {"normed heads", with_normed_heads},
                             {"window", with_window},
                             {"capped scores",
                              [](ModelConfig& model) {
                                model.attention_softcap = 0.05;
                                model.query_groups = 2;
                              }},
                             {"parallel, one norm", with_parallel_parts},
                             {"parallel", [](ModelConfig& model) { model.residual = "parallel"; }},
                             {"no positions, window",
                              [](ModelConfig& model) {
                                model.position_embedding = "none";
                                model.attention_window = 3;
                              }},
                             {"alibi, window", [](ModelConfig& model) {
                                model.position_embedding = "alibi";
                                model.attention_window = 4;
                              }}}));
  CAPTURE(name);
  const TrainedRun run(change);
  CHECK(worst_difference(run.directory, {}, DType::f32) < 1e-5);
}

TEST_CASE("decoder: every layout gives the logits of one rank") {
  const TrainedRun run(like_llama);
  for (const Layout& layout : {Layout{.tensor = 2}, Layout{.pipeline = 2}, Layout{.tensor = 4},
                               Layout{.tensor = 2, .pipeline = 4}, Layout{.tensor = 2, .pipeline = 2, .data = 2}}) {
    CAPTURE(layout.tensor, layout.pipeline, layout.data);
    CHECK(worst_difference(run.directory, layout, DType::f32) < 1e-5);
  }
}

TEST_CASE("decoder: 16-bit models, and a device of its own") {
  const TrainedRun run;
  CHECK(worst_difference(run.directory, {}, DType::f32, /*separate=*/true) < 1e-5);
  const double bf16 = worst_difference(run.directory, {}, DType::bf16);
  CHECK(bf16 > 1e-4);
  CHECK(bf16 < 0.2);
  CHECK(worst_difference(run.directory, {.tensor = 2}, DType::f16, /*separate=*/true) < 0.03);
}

TEST_CASE("decoder: memory is what the plan says, to the byte") {
  const TrainedRun run;
  for (const DType type : {DType::f32, DType::bf16}) {
    CAPTURE(name_of(type));
    const DecoderSizes sizes{
        .samples = 3, .groups = 2, .capacity = 12, .first_rows = 5, .logits_rows = 8, .reorders = true};
    const std::vector<std::vector<float>> want = uncached(run.directory, kTexts);
    std::mutex mutex;
    decode(run.directory, {.tensor = 2, .pipeline = 2}, type, sizes, false, [&](Decoder& decoder) {
      const DecoderMemory plan =
          plan_decoder(decoder.config(), decoder.grid().shape(), decoder.grid().at(), type, sizes);
      Comparison(want, decoder).texts(0);
      decoder.reorder(0, Tokens{2, 0, 1});
      std::vector<float> logits;
      decoder.run(1, {0, std::vector<Tokens>(3, {1, 2, 3, 4, 5}), {7, 7, 7}, {2, 1, 5}}, logits);
      const DecoderMemory memory = decoder.memory();
      const std::lock_guard lock(mutex);
      check_as_planned(memory, plan);
      // Staging is there where ranks are processes: tests/mpi_memory.
      CHECK(plan.communication > 0);
      CHECK(plan.host == 0);
      // 2 groups, keys and values of 2 layers, 12 rows of 3 samples, 2 heads of 8.
      CHECK(memory.cache == 2u * 2 * 2 * 12 * 3 * 2 * 8 * size_of(type));
    });
  }
}

TEST_CASE("decoder: initial weights are training's on every layout and in 16 bits") {
  const TrainedRun run;
  const auto logits_of = [&](const Layout& layout, DType type, std::uint64_t seed) {
    std::vector<float> all;
    decode(run.directory, layout, type, kSizes, false, [&](Decoder& decoder) {
      decoder.initialize(seed);
      std::vector<float> logits;
      decoder.run(0, {0, {{3, 1, 4, 1, 5}}, {0}, {2}}, logits);
      if (decoder.samples_here()) all = logits;
    });
    return all;
  };
  const std::vector<float> want = logits_of({}, DType::f32, 7);
  const auto worst = [&](const std::vector<float>& logits) {
    REQUIRE(logits.size() == want.size());
    double most = 0;
    for (std::size_t i = 0; i < want.size(); ++i) most = worst_of(most, std::abs(double{logits[i]} - want[i]));
    return most;
  };
  // As TrainedRun draws them, with a deviation of 0.2: far from 0.
  CHECK(*std::max_element(want.begin(), want.end()) > 0.5f);
  CHECK(worst(logits_of({.tensor = 2, .pipeline = 2}, DType::f32, 7)) < 1e-5);
  CHECK(worst(logits_of({}, DType::bf16, 7)) < 0.1);
  CHECK(worst(logits_of({}, DType::f32, 8)) > 0.5);
}
