// Blends of samples that are made set by set.
#include <array>

#include "data/samples/blended_samples.h"
#include "support/catch.h"

using namespace megatron;

namespace {

/// Sample i of set n is the token 100 n + i.
class NumberedSamples final : public Samples {
 public:
  NumberedSamples(std::int32_t set, std::optional<double> count) : set_(set), count_(count) {}
  std::uint64_t samples() const override { return 10; }
  std::string description() const override { return "numbers"; }
  void make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) override {
    to.of<std::int32_t>(&Rows::tokens)[0] = 100 * set_ + static_cast<std::int32_t>(sample);
    counts[0] += set_ + 1;
  }
  std::optional<double> count_per_sample(const BatchSizes& /*sizes*/) const override { return count_; }
  std::vector<NamedTokens> show(std::uint64_t sample) override {
    return {{"tokens", {100 * set_ + static_cast<std::int32_t>(sample)}}};
  }

 private:
  std::int32_t set_;
  std::optional<double> count_;
};

BlendedSamples blend_of(std::array<std::optional<double>, 2> counts) {
  std::vector<BlendedSamples::Part> parts(2);
  for (std::size_t i = 0; i < 2; ++i) {
    parts[i] = {std::make_unique<NumberedSamples>(static_cast<std::int32_t>(i), counts[i]), i == 0 ? 0.75 : 0.25,
                i == 0 ? "one" : "two"};
  }
  return {std::move(parts), 40};
}

}  // namespace

TEST_CASE("blended samples: each set's own samples in turn, by weight") {
  BlendedSamples blend = blend_of({1.0, 2.0});
  CHECK(blend.samples() == 40);
  CHECK(blend.terms() == 1);
  CHECK(blend.description() == "a blend of 2 sets: 75 % one (numbers), 25 % two (numbers)");
  const BatchLayout layout{.fields = {{.name = "tokens", .view = &Rows::tokens}}, .sizes = {.rows = {1}, .samples = 1}};
  const BatchBuffer buffer(layout, 1, host_memory());
  const SampleColumn column(buffer, layout.sizes, 0, 0);
  const BlendIndex index({0.75, 0.25});
  double counts = 0;
  std::array<int, 2> given{};
  for (std::uint64_t i = 0; i < 40; ++i) {
    const auto [set, own] = index.at(i);
    ++given[set];
    const auto token = static_cast<std::int32_t>(100 * set + own);
    blend.make(i, column, std::span(&counts, 1));
    CHECK(column.of<std::int32_t>(&Rows::tokens)[0] == token);
    CHECK(blend.show(i).at(0).ids == std::vector<std::int32_t>{token});
  }
  CHECK((given[0] == 30 && given[1] == 10 && counts == 50));
}

TEST_CASE("blended samples: a count per sample only if all sets have the same") {
  const BatchSizes sizes{.rows = {1}, .samples = 1};
  CHECK(blend_of({2.0, 2.0}).count_per_sample(sizes) == 2.0);
  CHECK(blend_of({2.0, 1.0}).count_per_sample(sizes) == std::nullopt);
  CHECK(blend_of({2.0, std::nullopt}).count_per_sample(sizes) == std::nullopt);
}
