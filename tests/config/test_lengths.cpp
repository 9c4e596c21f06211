// How long a run is, and what happens how often in it, whichever way it is said.
#include <cmath>

#include <fmt/format.h>

#include "config/schema/run_schedule.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("the run's length from samples, tokens and epochs", "[config]") {
  CHECK(resolved({"train.samples=807"}).train.steps == 100);
  CHECK(resolved({"train.samples=807"}).train.samples == 0);
  CHECK(resolved({"train.tokens=12799"}).train.steps == 99);  // 12799 / 16 = 799 samples
  CHECK(resolved({"train.epochs=2"}).train.steps == 250);
  CHECK(resolved({"train.epochs=0.29"}).train.steps == 36);  // 290 samples
  CHECK(resolved({"train.epochs=2"}, 1, nullptr).train.steps == 0);
  CHECK(resolved({"train.epochs=2"}, 1, nullptr).train.epochs == 2);
  CHECK(resolved({"learning_rate.decay_steps=50", "learning_rate.warmup_steps=5"}).learning_rate.decay_samples == 400);
  CHECK(resolved({"learning_rate.decay_steps=50", "learning_rate.warmup_steps=5"}).learning_rate.warmup_samples == 40);
  const Config ramp = resolved({"train.samples=100", "train.batch_ramp_up={start=2, increment=2, samples=30}"});
  CHECK(ramp.train.steps == BatchSchedule(8, {2, 2, 30}).steps_for(100));
  CHECK(ramp.learning_rate.decay_samples == BatchSchedule(8, {2, 2, 30}).samples_after(ramp.train.steps));
}

TEST_CASE("lengths: each unit of length ends with the last step it suffices for", "[config]") {
  // From hand: batches of 2 up to sample 10, of 4 up to 20, of 6 up to 30, then 8: steps begin at samples
  // 0 2 4 6 8 | 10 14 18 | 22 28 | 34 42 50 ...
  const std::string ramp = "train.batch_ramp_up={start=2, increment=2, samples=30}";
  const std::vector<std::int64_t> after = {0, 2, 4, 6, 8, 10, 14, 18, 22, 28, 34, 42, 50, 58};
  const RunSchedule schedule(resolved({ramp}));
  for (std::size_t n = 1; n < after.size(); ++n) {
    CAPTURE(n);
    const auto step = static_cast<std::int64_t>(n);
    CHECK(schedule.samples_after(step) == after[n]);
    CHECK(schedule.tokens_after(step) == 16 * after[n]);
    const StepShape shape = schedule.step_after(step - 1);
    CHECK(shape.first_sample == after[n - 1]);
    CHECK(shape.samples == after[n] - after[n - 1]);
    CHECK(shape.sequence == 16);
    const auto steps = [&](const std::string& length, std::int64_t samples_a_pass) {
      const DataFacts data{100, samples_a_pass};
      return resolved({ramp, length}, 1, &data).train.steps;
    };
    CHECK(steps(fmt::format("train.steps={}", n), 1000) == step);
    CHECK(steps(fmt::format("train.samples={}", after[n]), 1000) == step);
    CHECK(steps(fmt::format("train.tokens={}", 16 * after[n]), 1000) == step);
    CHECK(steps("train.epochs=2", after[n] / 2) == step);
    if (n == 1) continue;
    CHECK(steps(fmt::format("train.samples={}", after[n] - 1), 1000) == step - 1);
    CHECK(steps(fmt::format("train.tokens={}", 16 * after[n] - 1), 1000) == step - 1);
  }
  CHECK(resolved({ramp, "learning_rate.warmup_steps=6", "learning_rate.decay_steps=9"}).learning_rate.warmup_samples ==
        14);
  CHECK(resolved({ramp, "learning_rate.warmup_steps=6", "learning_rate.decay_steps=9"}).learning_rate.decay_samples ==
        28);
  CHECK(resolved({ramp, "learning_rate.warmup_samples=5"}).learning_rate.warmup_samples == 5);
}

TEST_CASE("the decay at the end of a wsd schedule in samples", "[config]") {
  const auto samples = [](std::vector<std::string> options) {
    options.push_back("learning_rate.decay=wsd");
    const Config config = resolved(options);
    CHECK(config.learning_rate.wsd_decay_steps == 0);
    return config.learning_rate.wsd_decay_samples;
  };
  CHECK(samples({"learning_rate.wsd_decay_steps=10"}) == 80);
  CHECK(samples({"learning_rate.wsd_decay_samples=77"}) == 77);
  CHECK(samples({"learning_rate.wsd_decay_steps=100"}) == 800);
  CHECK(samples({"learning_rate.wsd_decay_steps=10", "learning_rate.decay_samples=203"}) == 80);
  CHECK(samples({"learning_rate.wsd_decay_steps=90", "learning_rate.warmup_steps=10"}) == 720);
  // The last four of thirteen steps while the batch grows: after 58, 50, 42, 34 and 28 samples.
  CHECK(samples({"learning_rate.wsd_decay_steps=4", "train.steps=13",
                 "train.batch_ramp_up={start=2, increment=2, samples=30}"}) == 58 - 28);
  // Saying it in another way on the command line replaces the file's.
  CHECK(parse_config_text(small_file() + "[learning_rate]\ndecay = \"wsd\"\nwsd_decay_steps = 5\n", "f.toml",
                          {"learning_rate.wsd_decay_samples=9"})
            .learning_rate.wsd_decay_steps == 0);
}

TEST_CASE("a run too short for its warm-up: a shorter one, with a warning", "[config]") {
  const auto shortened = [](std::vector<std::string> options, std::vector<std::string>& warnings) {
    Config config = parse_small(options);
    resolve(config, 1, &kData, &warnings);
    Config again = config;
    resolve(again, 1, &kData);
    CHECK(again == config);
    return config.learning_rate;
  };
  std::vector<std::string> warnings;
  LearningRateConfig rate = shortened({"learning_rate.warmup_steps=100"}, warnings);
  CHECK(rate.warmup_samples == 80);
  CHECK(rate.decay_samples == 800);
  REQUIRE(warnings.size() == 1);
  CHECK(
      contains(warnings[0],
               "learning_rate: the warm-up of 100 steps = 800 samples is not shorter than the run's 800 samples; it is "
               "shortened to 80, 1/10 of them. train.stop_after = 100 tries"));
  warnings.clear();
  rate = shortened({"learning_rate.decay=wsd", "learning_rate.wsd_decay_steps=101", "learning_rate.warmup_steps=99"},
                   warnings);
  CHECK(rate.warmup_samples == 792);
  CHECK(rate.wsd_decay_samples == 8);
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0],
                 "the wsd decay of 101 steps does not fit into the run's 800 samples = 100 steps after the warm-up of "
                 "792; it is shortened to the 8 that are left"));
  warnings.clear();
  rate = shortened({"train.steps=1", "learning_rate.warmup_steps=5"}, warnings);
  CHECK(rate.warmup_samples == 0);
  shortened({"learning_rate.warmup_steps=99"}, warnings);
  CHECK(warnings.size() == 1);
}

TEST_CASE("every input file can be shortened to ten steps", "[config]") {
  for (const auto& entry : std::filesystem::directory_iterator(repository() / "inputs")) {
    if (entry.path().extension() != ".toml") continue;
    INFO(entry.path().string());
    Config config = parse_config(entry.path().string(), {"train.steps=10"});
    const ParallelConfig& parallel = config.parallel;
    const std::int64_t ranks =
        parallel.tensor * parallel.context * parallel.pipeline * std::max(parallel.expert, parallel.data);
    const DataFacts data{config.model.vocab_size > 0 ? config.model.vocab_size : 257, 1000000};
    CHECK_NOTHROW(resolve(config, static_cast<int>(ranks), &data));
    CHECK(config.train.steps == 10);
  }
}

TEST_CASE("evaluations: after every evaluate_every steps or each pass", "[config]") {
  const auto follow = [](const std::vector<std::string>& options, std::int64_t samples_a_pass) {
    const DataFacts data{100, samples_a_pass};
    const Config config = resolved(options, 1, &data);
    std::vector<std::int64_t> steps;
    for (std::int64_t step = 1; step <= 13; ++step) {
      if (evaluations_within(config, data, step) > evaluations_within(config, data, step - 1)) steps.push_back(step);
    }
    return steps;
  };
  using Steps = std::vector<std::int64_t>;
  CHECK(follow({}, 20).empty());
  CHECK(follow({"train.evaluate_every=5"}, 20) == Steps{5, 10});
  CHECK(follow({"train.evaluate_every=epoch"}, 20) == Steps{3, 5, 8, 10, 13});  // after 24, 40, 64, 80, 104
  CHECK(follow({"train.evaluate_every=epoch"}, 24) == Steps{3, 6, 9, 12});
  CHECK(follow({"train.evaluate_every=epoch"}, 104) == Steps{13});
  CHECK(follow({"train.evaluate_every=epoch"}, 105).empty());
  CHECK(follow({"train.evaluate_every=epoch"}, 3).size() == 13);
  // After 10, 22, 34, 42 and 50 samples.
  CHECK(follow({"train.evaluate_every=epoch", "train.batch_ramp_up={start=2, increment=2, samples=30}"}, 10) ==
        Steps{5, 8, 10, 11, 12});
}
