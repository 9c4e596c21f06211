// Lines of metrics and progress that stand for several steps.
#include <cmath>

#include "base/core/error.h"
#include "monitoring/metrics/metrics.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/require_error.h"
#include "training/step/interval.h"

using namespace megatron;
using namespace megatron::test;

namespace {

StepResult step_of(double loss, double count) {
  StepResult step;
  step.loss = loss;
  step.loss_terms = {loss};
  step.loss_counts = {count};
  step.batch.samples = 2;
  step.batch.sequence = 16;
  return step;
}

// Batches of 2, 4, 6 and then 8 samples: steps that weigh differently.
Config growing_run(const ShardFolder& folder, const std::string& name) {
  Config config = tiny_config();
  config.data.train = make_corpus(folder);
  config.train.steps = 10;
  config.train.micro_batch_size = 2;
  config.train.batch_ramp_up = {2, 2, 30};
  config.run.directory = folder.file(name);
  return config;
}

std::vector<nlohmann::json> timeless(std::vector<nlohmann::json> lines) {
  for (nlohmann::json& line : lines) {
    for (const char* key :
         {"step_seconds", "tokens_per_second", "model_tflops_per_rank", "hardware_tflops_per_rank", "time"}) {
      line.erase(key);
    }
  }
  return lines;
}

}  // namespace

TEST_CASE("interval: the mean loss is weighted by the steps' loss counts") {
  Interval interval;
  CHECK(std::isnan(interval.loss()));
  interval.add(step_of(0.1, 7), 1, {});
  CHECK(interval.loss() == 0.1);
  interval.add(step_of(0.4, 14), 1, {});
  CHECK(interval.loss() == Approx(0.3).epsilon(1e-15));
  interval.add(step_of(std::nan(""), 100), 1, {});
  interval.add(step_of(INFINITY, 100), 1, {});
  CHECK(interval.loss() == Approx(0.3).epsilon(1e-15));
  CHECK(interval.tokens_per_second() == 32);
  CHECK(interval.step_seconds() == 1);
}

TEST_CASE("interval: a step without targets of a term does not change its mean") {
  const auto step_of_two = [](double first, double count, double second) {
    StepResult step = step_of(first + second, count);
    step.loss_terms = {first, second};
    step.loss_counts = {count, 4};
    return step;
  };
  Interval interval;
  interval.add(step_of_two(0, 0, 0.7), 1, {});
  CHECK(interval.loss() == 0.7);
  CHECK(std::isnan(interval.loss_terms().at(0)));
  CHECK(interval.loss_terms().at(1) == 0.7);
  interval.add(step_of_two(3.1, 5, 0.9), 1, {});
  CHECK(interval.loss() == 4.0);
  CHECK(interval.loss_terms().at(0) == 3.1);
  CHECK(interval.loss_terms().at(1) == Approx(0.8));
  interval.add(step_of_two(0, 0, 0.8), 1, {});
  CHECK(interval.loss_terms().at(0) == 3.1);
}

TEST_CASE("interval: the state continues bit by bit and nonsense is refused") {
  Interval whole, first, second;
  for (int i = 1; i <= 6; ++i) {
    const StepResult step = step_of(3.0 / i, 10.0 + i);
    whole.add(step, 1, {});
    (i <= 3 ? first : second).add(step, 1, {});
    if (i == 3) second.set_loss_state(nlohmann::json::parse(first.loss_state().dump()));
  }
  CHECK(second.loss() == whole.loss());
  require_error(ErrorKind::checkpoint, {"mean loss"}, [&] { first.set_loss_state({{"mean", 1.0}, {"count", -1.0}}); });
  require_error(ErrorKind::checkpoint, {"count"}, [&] { first.set_loss_state({{"mean", 1.0}}); });
}

TEST_CASE("interval: loss terms that the model does not have are dropped") {
  Interval interval;
  interval.set_loss_state(nlohmann::json::parse(R"({"mean": 1, "count": 2,
    "terms": [{"mean": 1, "count": 2}, {"mean": 3, "count": 2}, {"mean": 4, "count": 2}]})"));
  interval.add(step_of(4, 1), 1, {});
  CHECK(interval.loss() == 2);
  CHECK(interval.loss_terms() == std::vector<double>{2});
}

TEST_CASE("lines for several steps hold mean losses, also across a resume") {
  const ShardFolder folder;
  Config config = growing_run(folder, "every_step");
  config.run.parameter_norm = true;
  const std::vector<nlohmann::json> steps = run_loop(config).metrics;

  config.run.directory = folder.file("some");
  config.run.log_every = 3;
  config.run.metrics_every = 4;
  config.checkpoint.every_steps = 6;
  config.checkpoint.keep_last = 0;
  const LoopResult straight = run_loop(config);
  std::vector<nlohmann::json> lines;
  for (const nlohmann::json& line : straight.metrics) {
    if (line.at("kind") == "train") lines.push_back(line);
  }
  REQUIRE(lines.size() == 4);
  const int ends[] = {1, 4, 8, 10};
  std::size_t step = 0;
  double tokens_before = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    double sum = 0, tokens = 0;
    for (; step < steps.size() && steps[step].at("kind") == "train" && steps[step].at("step") <= ends[i]; ++step) {
      const double weight = steps[step].at("tokens").get<double>() - tokens_before;
      tokens_before += weight;
      tokens += weight;
      sum += weight * steps[step].at("loss").get<double>();
    }
    CHECK(lines[i].at("step") == ends[i]);
    CHECK(lines[i].at("loss").get<double>() == Approx(sum / tokens).epsilon(1e-12));
    CHECK(lines[i].at("losses").at("language_model") == lines[i].at("loss"));
    for (const char* key : {"grad_norm", "parameter_norm"}) CHECK(lines[i].at(key) == steps[step - 1].at(key));
  }
  for (const int printed : {1, 3, 6, 9, 10}) CHECK_THAT(straight.log, Contains(fmt::format(" {}/10 ", printed)));
  CHECK_THAT(straight.log, !Contains(" 4/10 "));

  std::filesystem::remove_all(config.run.directory + "/checkpoints/step_00000010");
  const LoopResult resumed = run_loop(config);
  CHECK_THAT(resumed.log, Contains("at step 6") && Contains(" 7/10 "));
  CHECK(timeless(resumed.metrics) == timeless(straight.metrics));
}
