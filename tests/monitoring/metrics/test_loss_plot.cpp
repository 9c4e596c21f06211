#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "monitoring/metrics/loss_plot.h"
#include "monitoring/metrics/metrics.h"
#include "monitoring/plots/axis.h"
#include "monitoring/plots/markup.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;

namespace {

PlotData plot_data_of(const std::string& path) {
  PlotData data;
  visit_metrics(path, [&](const nlohmann::json& line, std::string_view) { data.add(line); });
  return data;
}

}  // namespace

TEST_CASE("decimation keeps extremes, means and counts in bounded memory") {
  DecimatedCurve curve;
  double sum = 0;
  const int points = 123457;
  for (int i = 0; i < points; ++i) {
    const double y = i == 77777 ? 50.0 : i == 99999 ? -3.0 : 5.0 + std::sin(i);
    sum += y;
    curve.add(i, y);
    if (i % 100 == 0) curve.add(i, std::nan(""));
  }
  CHECK(curve.buckets().size() <= 1000);
  CHECK(curve.buckets().size() > 400);
  double total = 0, high = -1e9, low = 1e9, previous = -1;
  std::int64_t count = 0;
  for (const auto& bucket : curve.buckets()) {
    total += bucket.mean * static_cast<double>(bucket.count);
    count += bucket.count;
    high = std::max(high, bucket.maximum);
    low = std::min(low, bucket.minimum);
    CHECK(bucket.x > previous);
    previous = bucket.x;
    CHECK(bucket.count <= curve.points_per_bucket());
  }
  CHECK(count == points);
  CHECK(total == Approx(sum));
  CHECK(high == 50);
  CHECK(low == -3);
}

TEST_CASE("smoothing leaves a constant and a short curve alone and averages noise") {
  DecimatedCurve flat, noisy;
  for (int i = 0; i < 600; ++i) {
    flat.add(i, 2.5);
    noisy.add(i, i % 2 == 0 ? 1.0 : 3.0);
  }
  for (const double y : smoothed(flat.buckets())) CHECK(y == Approx(2.5));
  const auto means = smoothed(noisy.buckets());
  for (std::size_t i = 20; i < means.size(); ++i) CHECK(means[i] == Approx(2).margin(0.2));
  CHECK(means.front() == 1.0);
  CHECK(smoothed({}).empty());
}

TEST_CASE("ticks are round numbers inside the range") {
  CHECK(nice_ticks(0, 10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(nice_ticks(-1, 1, 4) == std::vector<double>{-1, -0.5, 0, 0.5, 1});
  CHECK(nice_ticks(1, 1500, 3) == std::vector<double>{500, 1000, 1500});
  CHECK(nice_ticks(3, 3, 4).empty());
  for (const double scale : {1e-12, 1e-4, 1.0, 3e7, 1e15}) {
    const auto ticks = nice_ticks(0.13 * scale, 9.7 * scale, 6);
    CHECK(ticks.size() >= 3);
    CHECK(ticks.size() <= 7);
    CHECK(ticks.front() >= 0.13 * scale);
    CHECK(ticks.back() <= 9.7 * scale * (1 + 1e-12));
  }
}

TEST_CASE("the plot is well-formed, bounded and shows what the metrics hold") {
  const TemporaryFolder folder;
  Log log(false);
  {
    MetricsWriter writer(folder.file("metrics.jsonl"), log);
    for (std::int64_t step = 1; step <= 5000; ++step) {
      TrainMetrics metrics;
      metrics.step = step;
      metrics.loss =
          step == 17 ? std::nan("") : 2 + 8 * std::exp(-static_cast<double>(step) / 500) + 0.1 * std::sin(step);
      metrics.learning_rate = 1e-4;
      writer.write(metrics);
      if (step % 1000 == 0) writer.write(EvaluationMetrics{"validation", step, metrics.loss + 0.2});
    }
    writer.write(EvaluationMetrics{"test", 5000, 2.3});
  }
  PlotData data = plot_data_of(folder.file("metrics.jsonl"));
  std::filesystem::remove(folder.file("metrics.jsonl"));  // a redraw reads nothing
  LossPlot plot(folder.path(), "GPT <tiny> & \"quoted\" \x1b", data, log);
  plot.redraw();
  const std::string svg = contents_of(folder.file("loss.svg"));
  check_picture(svg);
  CHECK(svg.size() < 100000);
  CHECK(svg.find("GPT &lt;tiny&gt; &amp; &quot;quoted&quot; \\x1b") != std::string::npos);
  CHECK(has(svg, ">step 5,000</text>"));
  CHECK(has(svg, ">Loss (nats per token)</text>"));
  CHECK(has(svg, "steps (band: every step) <tspan>2.0"));
  CHECK(has(svg, fmt::format(">validation <tspan>{:.5g}</tspan>", data.evaluations[0].second.buckets().back().mean)));
  CHECK(has(svg, ">test <tspan>2.3</tspan>"));
  CHECK(times_in(svg, "class=\"m1\"") == 5 + 1);  // evaluations and their mark in the legend
  CHECK(times_in(svg, "class=\"m2\"") == 1 + 1);
  CHECK(times_in(svg, "<polyline") == 2 + 1 + 1);
  CHECK(places_of(svg, "b b0").size() == 2 * data.train_loss.buckets().size());
  // It is drawn again from what has come since, and still without a file.
  data.add({{"kind", "eval"}, {"split", "test"}, {"step", 5001}, {"loss", 2.25}});
  data.add({{"kind", "train"}, {"step", 5001}, {"loss", 2.0}});
  plot.redraw();
  const std::string again = contents_of(folder.file("loss.svg"));
  check_picture(again);
  CHECK(has(again, ">step 5,001</text>"));
  CHECK(has(again, ">test <tspan>2.25</tspan>"));
  CHECK(times_in(again, "class=\"m2\"") == 2 + 1);
}

TEST_CASE("loss plot: the picture of a million lines is bounded") {
  PlotData data;
  for (int i = 0; i < 8; ++i) {
    PlotData::curve(data.evaluations, fmt::format("split {}", i));
    PlotData::curve(data.accuracies, fmt::format("task {}", i));
  }
  for (int step = 1; step <= 1'000'000; ++step) {
    data.train_loss.add(step, 3 + std::sin(step));
    data.learning_rate.add(step, 1.0 / step);
    if (step % 100 != 0) continue;
    for (auto& [name, curve] : data.evaluations) curve.add(step, 3);
    for (auto& [name, curve] : data.accuracies) curve.add(step, 50);
  }
  const std::string svg = draw_loss_plot(data, "long");
  check_picture(svg);
  CHECK(svg.size() < 400000);                          // 18 curves
  CHECK(places_of(svg, "c c0").size() <= 4 * 1000);    // training and the eighth evaluation, an accuracy, the rate
  CHECK(times_in(svg, "class=\"m") <= 16 * (1 + 40));  // in the legend, and on the curves
}

TEST_CASE("loss plot: short curves are not smoothed and begin at the first step") {
  const TemporaryFolder folder;
  Log log(false);
  MetricsWriter writer(folder.file("metrics.jsonl"), log);
  for (const std::int64_t step : {1, 10, 20, 30, 40}) {
    TrainMetrics metrics;
    metrics.step = step;
    metrics.loss = 5 - 0.05 * static_cast<double>(step);
    metrics.losses = {{"language_model", metrics.loss}};
    writer.write(metrics);
  }
  const PlotData data = plot_data_of(folder.file("metrics.jsonl"));
  std::vector<double> middles;
  for (const auto& bucket : data.train_loss.buckets()) middles.push_back(bucket.x);
  CHECK(middles == std::vector<double>{1, 6, 15.5, 25.5, 35.5});
  CHECK(data.steps_per_line() == 10);
  const std::string svg = draw_loss_plot(data, "short");
  check_picture(svg);
  CHECK(times_in(svg, "<polyline class=\"c c0\"") == 1 + 1);  // training and learning rate
  CHECK(has(svg, ">training, mean of 10 steps <tspan>3<"));
  const auto places = places_of(svg, "c c0");
  CHECK(places.front().first == 64);  // step 1; the last point is in the middle of steps 31 to 40
  CHECK(places[4].first == Approx(64 + (902 - 64) * 34.5 / 39).margin(0.05));
  CHECK(times_in(svg, ">training, ") == 1);
}

TEST_CASE("loss plot: another training loss has its name and its own panel") {
  PlotData data;
  data.loss_name = "key_tokens";
  for (int step = 1; step <= 5; ++step) data.train_loss.add(step, 60 + step);
  PlotData::curve(data.evaluations, "validation")->add(5, 3.5);
  const std::string svg = draw_loss_plot(data, "weighted");
  check_picture(svg);
  const std::size_t panel = svg.find(">Evaluations (nats per token)<");
  REQUIRE(panel != std::string::npos);
  CHECK(svg.find(">Loss (key_tokens)<") < panel);
  CHECK(svg.find(">validation <tspan>3.5<") > panel);
  // In the middle of its own axis, not at the bottom of the training's.
  CHECK(svg.find("<circle class=\"m0\" cx=\"902.0\" cy=\"62.0\"") > panel);
  data.loss_name = "language_model";
  CHECK_FALSE(has(draw_loss_plot(data, "plain"), "Evaluations"));
}

TEST_CASE("loss plot: no metrics or one point or only nulls still give a picture") {
  check_picture(draw_loss_plot({}, ""));
  PlotData one;
  one.train_loss.add(1, 5);
  check_picture(draw_loss_plot(one, "one"));
  one.train_loss.add(2, 5);
  one.learning_rate.add(1, 0);
  check_picture(draw_loss_plot(one, "equal"));
  PlotData evaluated;
  PlotData::curve(evaluated.evaluations, "validation")->add(10, 3.5);
  const std::string svg = draw_loss_plot(evaluated, "evaluation only");
  check_picture(svg);
  CHECK(has(svg, ">validation <tspan>3.5<"));
  PlotData hostile;
  for (const double step : {1.0, 1e300, -1e300}) hostile.add({{"kind", "train"}, {"step", step}, {"loss", -step}});
  check_picture(draw_loss_plot(hostile, "hostile"));
}

TEST_CASE("a plot that cannot be written does not end the run") {
  Log log(false);
  const TemporaryFolder folder;
  const PlotData data;
  LossPlot plot(folder.file("missing/folder"), "title", data, log);
  plot.redraw();
  plot.redraw();
}

TEST_CASE("loss plot: a task with an accuracy has its panel and others a curve") {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  Log log(false);
  MetricsWriter writer(path, log);
  for (std::int64_t step = 1; step <= 4; ++step) {
    TrainMetrics line;
    line.step = step;
    line.loss = 5.0 - static_cast<double>(step);
    writer.write(line);
    const auto task = [&](const char* name, std::vector<std::pair<std::string, double>> measures) {
      writer.write(TaskMetrics{.name = name, .task = "x", .step = step, .measures = std::move(measures)});
    };
    task("wiki", {{"loss", 3.5}});
    task("<words>", {{"loss", 90}, {"accuracy", 0.1 * static_cast<double>(step)}});
    task("questions", {{"loss", 80}, {"accuracy", 0.25}, {"accuracy_normalized", 0.5}});
  }
  const PlotData data = plot_data_of(path);
  REQUIRE(data.evaluations.size() == 1);
  CHECK(data.evaluations[0].first == "wiki");
  REQUIRE(data.accuracies.size() == 3);
  CHECK(data.accuracies[0].second.buckets().back().mean == Approx(40));
  CHECK(data.accuracies[2].first == "questions by byte");
  const std::string svg = draw_loss_plot(data, "run");
  check_picture(svg);
  CHECK(has(svg, ">Accuracy (%)<"));
  CHECK(has(svg, ">&lt;words&gt; <tspan>40<"));
  CHECK(has(svg, ">questions by byte <tspan>50<"));
  CHECK(times_in(svg, "<polyline class=\"c ") == 1 + 1 + 3 + 1);  // training, wiki, accuracies, learning rate
  CHECK_FALSE(has(draw_loss_plot(PlotData(), "run"), "Accuracy"));
}

TEST_CASE("loss plot: an evaluation with an accuracy has two curves") {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  Log log(false);
  MetricsWriter writer(path, log);
  for (std::int64_t step = 1; step <= 3; ++step) {
    const auto evaluation = [&](const char* split, std::optional<double> accuracy) {
      EvaluationMetrics line;
      line.split = split;
      line.step = step;
      line.loss = 1;
      line.accuracy = accuracy;
      writer.write(line);
    };
    evaluation("validation", 0.25 * static_cast<double>(step));
    evaluation("test", std::nullopt);
  }
  const PlotData data = plot_data_of(path);
  CHECK(data.evaluations.size() == 2);
  REQUIRE(data.accuracies.size() == 1);
  CHECK(data.accuracies[0].first == "validation");
  CHECK(data.accuracies[0].second.buckets().back().mean == Approx(75));
  CHECK(has(draw_loss_plot(data, "run"), ">validation <tspan>75<"));
}
