#include <cmath>
#include <limits>

#include "config/schema/run_schedule.h"
#include "config/schema/sequence_schedule.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Curriculum growing(const std::string& schedule, std::int64_t start, std::int64_t steps, std::int64_t multiple,
                   std::int64_t root_degree = 2) {
  return {schedule, start, steps, multiple, root_degree, {}, {}};
}

std::vector<std::int64_t> first_lengths(const SequenceSchedule& schedule, std::int64_t count) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t step = 1; step <= count; ++step) lengths.push_back(schedule.length_of(step));
  return lengths;
}

using Lengths = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("without a curriculum every step has the model's length", "[config]") {
  const SequenceSchedule schedule(1024);
  CHECK(schedule.length_of(1) == 1024);
  CHECK(schedule.length_of(1'000'000'000'000) == 1024);
  CHECK(schedule.tokens_after(3) == 3072);
  CHECK(schedule.steps_for(3071) == 2);
  CHECK(schedule.steps_for(3072) == 3);
  CHECK(schedule.growing_steps() == 0);
  CHECK(schedule.tokens_after(std::numeric_limits<std::int64_t>::max() / 2) ==
        std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("the three curricula, computed by hand", "[config]") {
  // 4 + 12 t / 10: 5.2 6.4 7.6 8.8 10 11.2 12.4 13.6 14.8 16
  const SequenceSchedule linear(16, growing("fixed_linear", 4, 10, 4));
  CHECK(first_lengths(linear, 12) == Lengths{4, 4, 4, 8, 8, 8, 12, 12, 12, 16, 16, 16});
  CHECK(linear.growing_steps() == 9);
  CHECK(linear.tokens_after(12) == 3 * (4 + 8 + 12 + 16));
  // 4 + 12 √(t / 10): 7.79 9.37 10.57 11.59 12.49 13.30 14.04 14.73 15.38 16
  const SequenceSchedule root(16, growing("fixed_root", 4, 10, 4));
  CHECK(first_lengths(root, 11) == Lengths{4, 8, 8, 8, 12, 12, 12, 12, 12, 16, 16});
  // 4 + 12 ∛(t / 10): 9.57 11.02 12.03 12.84 13.52 14.12 14.65 15.14 15.59 16
  const SequenceSchedule cube_root(16, growing("fixed_root", 4, 10, 4, 3));
  CHECK(first_lengths(cube_root, 11) == Lengths{8, 8, 12, 12, 12, 12, 12, 12, 12, 16, 16});
  const SequenceSchedule discrete(16, {"fixed_discrete", 0, 0, 8, 2, {6, 10, 16}, {2, 5}});
  CHECK(first_lengths(discrete, 8) == Lengths{6, 6, 10, 10, 10, 16, 16, 16});
  CHECK(discrete.growing_steps() == 5);
  // DeepSpeed's example: 64 to 1024 in eights over 15000 steps.
  const SequenceSchedule published(1024, growing("fixed_linear", 64, 15000, 8));
  CHECK(published.length_of(1) == 64);
  CHECK(published.length_of(124) == 64);    // 71.94
  CHECK(published.length_of(125) == 72);    // 72 exactly
  CHECK(published.length_of(7500) == 544);  // half way
  CHECK(published.length_of(14999) == 1016);
  CHECK(published.length_of(15000) == 1024);
  // All at once: within one step.
  CHECK(first_lengths(SequenceSchedule(16, growing("fixed_linear", 8, 1, 8)), 2) == Lengths{16, 16});
}

TEST_CASE("curricula: steps agree with the published formula and with their sums", "[config]") {
  const struct {
    std::int64_t whole;
    Curriculum curriculum;
  } cases[] = {{1024, growing("fixed_linear", 64, 997, 8)},  {2048, growing("fixed_root", 64, 1013, 8)},
               {512, growing("fixed_root", 32, 331, 32, 3)}, {512, growing("fixed_root", 32, 331, 1, 4)},
               {100, growing("fixed_linear", 99, 7, 1)},     {2048, growing("fixed_linear", 8, 5, 8)}};
  for (const auto& [whole, curriculum] : cases) {
    CAPTURE(whole, curriculum.schedule, curriculum.start, curriculum.steps, curriculum.multiple);
    const SequenceSchedule schedule(whole, curriculum);
    const double degree = curriculum.schedule == "fixed_root" ? static_cast<double>(curriculum.root_degree) : 1;
    std::int64_t sum = 0;
    for (std::int64_t step = 1; step < 1200; ++step) {
      const double share = std::pow(static_cast<double>(step) / static_cast<double>(curriculum.steps), 1 / degree);
      const double exact =
          share * static_cast<double>(whole - curriculum.start) + static_cast<double>(curriculum.start);
      std::int64_t expected = static_cast<std::int64_t>(std::floor(exact + 1e-9));
      expected = std::min(expected - expected % curriculum.multiple, whole);
      REQUIRE(schedule.length_of(step) == expected);
      REQUIRE(schedule.tokens_after(step - 1) == sum);
      REQUIRE(schedule.steps_for(sum) == step - 1);
      REQUIRE(schedule.steps_for(sum + expected - 1) == step - 1);
      sum += expected;
    }
  }
}

TEST_CASE("the largest curriculum does not overflow", "[config]") {
  const std::int64_t whole = 1 << 24, steps = (1 << 30) - 1;
  const SequenceSchedule schedule(whole, growing("fixed_root", 1 << 12, steps, 1 << 12, 4));
  CHECK(schedule.length_of(steps) == whole);
  CHECK(schedule.length_of(steps - 1) == whole - (1 << 12));
  CHECK(schedule.length_of(1) == 23 * 4096);  // 4096 + 16773120 / 181.02 = 96755 = 23.6 · 4096
  CHECK(schedule.growing_steps() == steps - 1);
}

TEST_CASE("a run with a curriculum: batches, tokens, and where it ends", "[config]") {
  const std::string curriculum = "train.curriculum={schedule=\"fixed_linear\", start=4, steps=10, multiple=4}";
  const auto resolved = [&](std::vector<std::string> options) {
    options.push_back(curriculum);
    Config config = parse_small(options);
    const DataFacts data{100, 1000};
    resolve(config, 1, &data);
    return config;
  };
  // Batches of 8; 4 4 4 8 8 8 12 12 12 16 16 ... tokens per sample.
  const std::vector<std::int64_t> after = {0, 32, 64, 96, 160, 224, 288, 384, 480, 576, 704, 832, 960};
  const RunSchedule schedule(resolved({}));
  for (std::size_t n = 1; n < after.size(); ++n) {
    CAPTURE(n);
    const auto step = static_cast<std::int64_t>(n);
    CHECK(schedule.tokens_after(step) == after[n]);
    CHECK(schedule.samples_after(step) == 8 * step);
    CHECK(schedule.step_after(step - 1).tokens() == after[n] - after[n - 1]);
    CHECK(resolved({"train.tokens=" + std::to_string(after[n])}).train.steps == step);
    CHECK(resolved({"train.samples=" + std::to_string(8 * n)}).train.steps == step);
    if (n > 1) CHECK(resolved({"train.tokens=" + std::to_string(after[n] - 1)}).train.steps == step - 1);
  }
  CHECK(schedule.tokens_of_samples(8 * 3 + 5) == 96 + 5 * 8);
  CHECK(contains(error_of([&] { resolved({"train.tokens=31"}); }), "train.tokens = 31 / sequence_length 4"));

  // The learning rate counts samples, unless something is said in tokens.
  const LearningRateConfig samples = resolved({"train.steps=12", "learning_rate.warmup_steps=3"}).learning_rate;
  CHECK_FALSE(samples.counts_tokens());
  CHECK(samples.warmup_samples == 24);
  CHECK(samples.decay_samples == 96);
  const LearningRateConfig run = resolved({"train.tokens=960", "learning_rate.warmup_steps=3"}).learning_rate;
  CHECK(run.counts_tokens());
  CHECK(run.warmup_tokens == 96);
  CHECK(run.decay_tokens == 960);
  CHECK((run.warmup_samples == 0 && run.decay_samples == 0));
  CHECK(resolved({"train.tokens=960", "learning_rate.warmup_samples=28"}).learning_rate.warmup_tokens == 96 + 4 * 8);
  const LearningRateConfig warmup = resolved({"train.steps=12", "learning_rate.warmup_tokens=100"}).learning_rate;
  CHECK(warmup.warmup_tokens == 100);
  CHECK(warmup.decay_tokens == 960);
  const auto wsd = [&](std::vector<std::string> options) {
    options.insert(options.end(), {"train.tokens=960", "learning_rate.decay=wsd"});
    return resolved(options).learning_rate.wsd_decay_tokens;
  };
  CHECK(wsd({"learning_rate.wsd_decay_steps=4"}) == 960 - 480);
  CHECK(wsd({"learning_rate.wsd_decay_samples=32"}) == 960 - 480);
  CHECK(wsd({"learning_rate.wsd_decay_tokens=123"}) == 123);
  // Without a curriculum tokens are only another way to say samples.
  Config plain = parse_small({"train.tokens=1600", "learning_rate.warmup_tokens=160", "learning_rate.decay_tokens=1000",
                              "learning_rate.decay=wsd", "learning_rate.wsd_decay_tokens=320"});
  const DataFacts data{100, 1000};
  resolve(plain, 1, &data);
  CHECK_FALSE(plain.learning_rate.counts_tokens());
  CHECK(plain.learning_rate.warmup_samples == 10);
  CHECK(plain.learning_rate.decay_samples == 62);
  CHECK(plain.learning_rate.wsd_decay_samples == 20);
}

TEST_CASE("curricula that cannot be are refused with what to do", "[config][fault-4]") {
  struct Case {
    std::vector<std::string> options;
    std::string expected;
  };
  const std::string linear = "train.curriculum={schedule=\"fixed_linear\", ";
  const std::string discrete = "train.curriculum={schedule=\"fixed_discrete\", ";
  const Case cases[] = {
      {{"train.curriculum=5"}, "train.curriculum: expected table {schedule, ...}, got integer"},
      {{"train.curriculum={start=4}"},
       "train.curriculum.schedule is not one of \"fixed_linear\", \"fixed_root\", \"fixed_discrete\""},
      {{linear + "start=4}"}, "train.curriculum needs start and steps: {schedule = \"fixed_linear\", start = 64"},
      {{linear + "start=4, steps=0}"}, "train.curriculum.steps = 0 is out of range: at least 1"},
      {{linear + "start=4, steps=2000000000}"}, "train.curriculum.steps = 2000000000 is out of range"},
      {{linear + "start=4.5, steps=3}"}, "train.curriculum.start: expected integer, got number 4.5"},
      {{linear + "start=4, steps=3, until=[3]}"},
       "unknown key 'train.curriculum.until'; schedule \"fixed_linear\" has start, steps and multiple"},
      {{linear + "start=4, steps=3, root_degree=2}"}, "unknown key 'train.curriculum.root_degree'"},
      {{linear + "start=16, steps=3}"}, "train.curriculum.start = 16 is not smaller than model.sequence_length = 16"},
      {{linear + "start=4, steps=3}"},
       "train.curriculum.multiple = 8 does not divide both start = 4 and model.sequence_length = 16; possible: 1, 2, "
       "4"},
      {{linear + "start=4, steps=3, multiple=2}", "parallel.sequence_parallel=true", "parallel.tensor=4"},
       "train.curriculum.multiple = 2 is not a multiple of 4, into which sequences are cut; nearest: 4"},
      {{linear + "start=8, steps=3}", "train.batch_ramp_up={start=2, increment=2, samples=9}"},
       "train.curriculum and train.batch_ramp_up exclude each other"},
      {{"train.curriculum={schedule=\"fixed_root\", start=8, steps=3, root_degree=5}"},
       "train.curriculum.root_degree = 5 is above 4"},
      {{discrete + "lengths=[4, 16]}"}, "train.curriculum needs lengths and until"},
      {{discrete + "lengths=[], until=[3]}"}, "train.curriculum.lengths is empty"},
      {{discrete + "lengths=4, until=[3]}"}, "train.curriculum.lengths is not an array of integers"},
      {{discrete + "lengths=[4, 0], until=[3]}"}, "train.curriculum.lengths[1] = 0 is out of range"},
      {{discrete + "lengths=[4, 16], until=[3, 5]}"}, "2 lengths need 1 numbers in until"},
      {{discrete + "lengths=[8, 4, 16], until=[3, 5]}"}, "must both rise"},
      {{discrete + "lengths=[4, 8, 16], until=[5, 5]}"}, "must both rise"},
      {{discrete + "lengths=[4, 8], until=[3]}"}, "the last of lengths, 8, is not model.sequence_length = 16"},
      {{discrete + "lengths=[6, 16], until=[3]}", "parallel.sequence_parallel=true", "parallel.tensor=4"},
       "length 6 is not a multiple of 4, into which sequences are cut; nearest: 4, 8"},
  };
  for (const Case& c : cases) {
    const std::string error = error_of([&] { parse_small(c.options); });
    INFO(error);
    CHECK(contains(error, c.expected));
    CHECK(lines(error) == 1);
  }
}
