#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/core/error.h"
#include "monitoring/metrics/metrics.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using megatron::test::require_error;

namespace {

TrainMetrics metrics_of_step(std::int64_t step) {
  TrainMetrics metrics;
  metrics.step = step;
  metrics.loss = 2.5 + 1.0 / static_cast<double>(3 * step);
  metrics.losses = {{"language_model", metrics.loss}};
  metrics.samples = 8 * step;
  return metrics;
}

std::vector<std::int64_t> steps_in(const std::string& path, const std::string& kind) {
  std::vector<std::int64_t> steps;
  visit_metrics(path, [&](const nlohmann::json& object, std::string_view) {
    if (object.at("kind") == kind) steps.push_back(object.at("step"));
  });
  return steps;
}

/// All of which can be read, or are torn.
std::int64_t removed_lines(const std::string& path, std::int64_t last_step, const std::vector<std::string>& due = {}) {
  const RemovedMetrics removed = truncate_metrics(path, last_step, due);
  CHECK(removed.unreadable == 0);
  CHECK(removed.kept_as.empty());
  return removed.lines;
}

}  // namespace

TEST_CASE("a training line has exactly the promised fields in the promised order") {
  TrainMetrics metrics;
  metrics.step = 7;
  metrics.loss = 0.1;
  metrics.losses = {{"language_model", 0.1}, {"key\"tokens", 1e-300}};
  metrics.grad_norm = 1.0 / 3;
  metrics.learning_rate = 6e-5;
  metrics.samples = 336;
  metrics.tokens = 344064;
  metrics.epoch = 0.25;
  metrics.global_batch_size = 48;
  metrics.step_seconds = 1.5;
  metrics.tokens_per_second = 32768;
  metrics.model_tflops_per_rank = 0.125;
  metrics.hardware_tflops_per_rank = 0.15;
  metrics.loss_scale = 4294967296.0;
  metrics.skipped = 1;
  metrics.time = 1700000000.25;
  CHECK(metrics_line(metrics) ==
        R"({"kind":"train","step":7,"loss":0.1,"losses":{"language_model":0.1,"key\"tokens":1e-300},)"
        R"("grad_norm":0.3333333333333333,"learning_rate":6e-05,"samples":336,"tokens":344064,"epoch":0.25,)"
        R"("global_batch_size":48,"step_seconds":1.5,"tokens_per_second":32768,"model_tflops_per_rank":0.125,)"
        R"("hardware_tflops_per_rank":0.15,"loss_scale":4294967296,"skipped":1,"time":1700000000.25})");
  metrics.parameter_norm = 7.5;
  CHECK(metrics_line(metrics).find(R"("grad_norm":0.3333333333333333,"parameter_norm":7.5,"learning_rate":6e-05,)") !=
        std::string::npos);
  // With experts, each layer's shares, rounded to one part in 10^6.
  metrics.experts = ExpertMetrics{0.0625, 1e-5, {{"layers.1", {1.0 / 3, 2.0 / 3}}, {"layers.3", {1, 0}}}};
  const std::string line = metrics_line(metrics);
  CHECK(line.ends_with(
      R"("skipped":1,"experts":{"dropped":0.0625,"router_gap":1e-05,"load":{"layers.1":[0.333333,0.666667],)"
      R"("layers.3":[1,0]}},"time":1700000000.25})"));
  CHECK(nlohmann::json::parse(line).at("experts").at("load").at("layers.1").at(1) == 0.666667);
  CHECK(metrics_line(EvaluationMetrics{"test", 7, 0.0, {}, 336, 344064, 1700000000.25}) ==
        R"({"kind":"eval","split":"test","step":7,"loss":0,"perplexity":1,"samples":336,"tokens":344064,)"
        R"("time":1700000000.25})");
  // Several loss terms are written by name, and the perplexity is the first one's.
  CHECK(metrics_line(EvaluationMetrics{"test", 7, 5.0, {{"first", 0.0}, {"second", 2.5}}, 336, 344064, 2.5}) ==
        R"({"kind":"eval","split":"test","step":7,"loss":5,"losses":{"first":0,"second":2.5},"perplexity":1,)"
        R"("samples":336,"tokens":344064,"time":2.5})");
  // With labels, the share of right predictions, and the number of examples.
  CHECK(metrics_line(EvaluationMetrics{"test", 7, 5.0, {}, 336, 344064, 2.5, 0.75, 40}) ==
        R"({"kind":"eval","split":"test","step":7,"loss":5,"accuracy":0.75,"examples":40,"samples":336,)"
        R"("tokens":344064,"time":2.5})");
}

TEST_CASE("doubles read back as the same bits and non-finite ones are null") {
  for (const double value : {0.1, 1.0 / 3, 6.02214076e23, 5e-324, std::numeric_limits<double>::max(), 2.0, -7.25}) {
    TrainMetrics metrics;
    metrics.loss = value;
    const auto object = nlohmann::json::parse(metrics_line(metrics));
    const double read = object.at("loss").get<double>();
    CHECK(std::memcmp(&read, &value, sizeof value) == 0);
  }
  TrainMetrics metrics;
  metrics.loss = std::nan("");
  metrics.grad_norm = INFINITY;
  metrics.losses = {{"language_model", -INFINITY}};
  const auto object = nlohmann::json::parse(metrics_line(metrics));
  CHECK(object.at("loss").is_null());
  CHECK(object.at("grad_norm").is_null());
  CHECK(object.at("losses").at("language_model").is_null());
  CHECK(perplexity(0) == 1);
  CHECK(perplexity(1000) == std::exp(20.0));
}

TEST_CASE("experts: long lines are read back, too long ones leave the load out") {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  Log log(false);
  TrainMetrics metrics = metrics_of_step(1);
  const auto write = [&](std::size_t layers, std::size_t experts) {
    metrics.experts = ExpertMetrics{0, 0.5, {}};
    for (std::size_t layer = 0; layer < layers; ++layer) {
      metrics.experts->load.emplace_back("layers." + std::to_string(layer), std::vector<double>(experts, 0.123456));
    }
    MetricsWriter(path, log).write(metrics);
  };
  write(100, 512);
  write(300, 4096);
  std::vector<bool> loads;
  CHECK(visit_metrics(path, [&](const nlohmann::json& object, std::string_view) {
          const auto& experts = object.at("experts");
          CHECK(experts.at("router_gap") == 0.5);
          loads.push_back(experts.contains("load"));
          if (loads.back()) CHECK(experts.at("load").at("layers.99").size() == 512);
        }) == 0);
  CHECK(loads == std::vector<bool>{true, false});
  // Every token goes to all experts.
  metrics.experts = ExpertMetrics{0, INFINITY, {}};
  CHECK(metrics_line(metrics).find(R"("router_gap":null)") != std::string::npos);
}

TEST_CASE("lines: brackets in strings are no nesting, deep ones are passed over") {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  const std::string named = R"({"name":"\"[[[[[[[[[[[[","step":1})",
                    hidden = R"({"a":["]",["]",["]",["]",["]",["]",["]",[]]]]]]]]})";
  write_file(path, named + "\n" + hidden + "\n");
  int seen = 0;
  CHECK(visit_metrics(path, [&](const nlohmann::json&, std::string_view text) {
          CHECK(text == named);
          ++seen;
        }) == 1);
  CHECK(seen == 1);
}

TEST_CASE("metrics: truncation drops later lines of both kinds and a torn end") {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  Log log(false);
  {
    MetricsWriter writer(path, log);
    for (std::int64_t step = 1; step <= 10; ++step) {
      writer.write(metrics_of_step(step));
      if (step % 5 == 0) writer.write(EvaluationMetrics{"validation", step, 3.0});
    }
  }
  const std::string whole = contents_of(path);
  const std::size_t eighth = whole.find("{\"kind\":\"train\",\"step\":8");
  write_file(path, whole + "{\"kind\":\"train\",\"step\":11,\"lo");

  CHECK(removed_lines(path, 7) == 3 + 1 + 1);  // steps 8, 9, 10, an evaluation at 10, the torn line
  CHECK(contents_of(path) == whole.substr(0, eighth));
  CHECK(steps_in(path, "train") == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7});
  CHECK(steps_in(path, "eval") == std::vector<std::int64_t>{5});
  CHECK(removed_lines(path, 7) == 0);

  // Lines that a resumed run appends then make the same file as the run that never stopped.
  MetricsWriter writer(path, log);
  for (std::int64_t step = 8; step <= 10; ++step) writer.write(metrics_of_step(step));
  writer.write(EvaluationMetrics{"validation", 10, 3.0});
  CHECK(contents_of(path) == whole);
  CHECK_FALSE(std::filesystem::exists(path + ".partial"));

  CHECK(removed_lines(path, 0) == 12);
  CHECK(contents_of(path).empty());
}

TEST_CASE("a torn end at every byte gives the whole lines before it") {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  const std::string first = metrics_line(metrics_of_step(1)) + '\n', second = metrics_line(metrics_of_step(2));
  for (std::size_t length = 0; length < second.size(); ++length) {
    write_file(path, first + second.substr(0, length));
    CHECK(removed_lines(path, 5) == (length > 0 ? 1 : 0));
    CHECK(contents_of(path) == first);
  }
  write_file(path, first + second);  // only the line end is missing: the line is whole
  CHECK(removed_lines(path, 5) == 0);
  CHECK(contents_of(path) == first + second + '\n');
}

TEST_CASE("metrics: truncation keeps unreadable lines aside with the whole file", "[fault-90]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  CHECK(removed_lines(path, 5) == 0);
  CHECK_FALSE(std::filesystem::exists(path));
  const std::string line = metrics_line(metrics_of_step(1)) + '\n', later = metrics_line(metrics_of_step(9)) + '\n';
  const std::string damaged = line + later + std::string(1000000, '[') + "\n12\nnot json\n\n" + std::string(9, '\0') +
                              "\n{\"note\":true}\n" + std::string(2000000, 'x');
  write_file(path, damaged);
  std::string visited;
  const RemovedMetrics removed = truncate_metrics(
      path, 5, {}, [&](const nlohmann::json&, std::string_view text) { visited += std::string(text) + '\n'; });
  CHECK(removed.lines == 1);
  CHECK(removed.unreadable == 6);
  CHECK(removed.kept_as == path + ".damaged");
  CHECK(contents_of(path) == line + "{\"note\":true}\n");
  CHECK(visited == contents_of(path));
  CHECK(contents_of(removed.kept_as) == damaged);
  // Another time it has another name, and nothing is written over.
  write_file(path, "{\n\"kind\": \"train\"\n}\n" + line + "{\"kind\":\"tr");
  CHECK(truncate_metrics(path, 5).kept_as == path + ".damaged2");
  CHECK(contents_of(path) == line);
  CHECK(contents_of(path + ".damaged") == damaged);
  CHECK(removed_lines(path, 5) == 0);
  // A text without an end of its line is no torn line of the metrics.
  write_file(path, "a text");
  CHECK(truncate_metrics(path, 5).kept_as == path + ".damaged3");
  CHECK(contents_of(path + ".damaged3") == "a text");
}

TEST_CASE("metrics: a pipe or an unreadable file is 7, and stays", "[fault-55]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl"), other = folder.file("other");
  const auto refused = [&] { require_error(ErrorKind::filesystem, {path}, [&] { truncate_metrics(path, 5); }); };
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  refused();
  CHECK(std::filesystem::is_fifo(path));
  std::filesystem::remove(path);
  std::filesystem::create_symlink(path, path);  // cannot be opened, even by root
  refused();
  CHECK(std::filesystem::is_symlink(path));
  std::filesystem::remove(path);
  // A link in the place of the new file is not followed.
  const std::string line = metrics_line(metrics_of_step(1)) + '\n';
  write_file(path, line);
  write_file(other, "another's");
  std::filesystem::create_symlink(other, path + ".partial");
  CHECK(removed_lines(path, 5) == 0);
  CHECK(contents_of(path) == line);
  CHECK(contents_of(other) == "another's");
}

TEST_CASE("a folder that cannot be written is a filesystem error when truncating") {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  write_file(path, metrics_line(metrics_of_step(1)) + '\n');
  std::filesystem::create_directory(path + ".partial");  // in the way
  try {
    truncate_metrics(path, 0);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::filesystem);
    CHECK(std::string(error.what()).find(path) != std::string::npos);
  }
  CHECK(steps_in(path, "train") == std::vector<std::int64_t>{1});
}

TEST_CASE("metrics: a deleted file is begun anew and a full one only loses lines", "[fault-45][fault-48]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  Log log(false);
  MetricsWriter writer(path, log);
  writer.write(metrics_of_step(1));
  std::filesystem::remove(path);
  writer.write(metrics_of_step(2));
  CHECK(steps_in(path, "train") == std::vector<std::int64_t>{2});

  MetricsWriter full("/dev/full", log);
  full.write(metrics_of_step(1));
  full.write(metrics_of_step(2));
  const std::string later = folder.file("later/metrics.jsonl");
  MetricsWriter impossible(later, log);
  impossible.write(metrics_of_step(1));
  std::filesystem::create_directory(folder.file("later"));
  impossible.write(metrics_of_step(2));
  CHECK(steps_in(later, "train") == std::vector<std::int64_t>{2});
}

TEST_CASE("metrics: no link is followed and a folder moved away loses no line", "[fault-48][fault-55]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), path = run + "/metrics.jsonl", other = folder.file("other");
  Log log(false);
  write_file(other, "another's");
  std::filesystem::create_directory(run);
  std::filesystem::create_symlink(other, path);
  MetricsWriter(path, log).write(metrics_of_step(1));
  CHECK(contents_of(other) == "another's");
  std::filesystem::remove(path);

  MetricsWriter writer(path, log);
  writer.write(metrics_of_step(1));
  std::filesystem::rename(run, folder.file("moved"));
  writer.write(metrics_of_step(2));
  CHECK(steps_in(folder.file("moved/metrics.jsonl"), "train") == std::vector<std::int64_t>{1, 2});
  std::filesystem::create_directory(run);  // as the next checkpoint does
  writer.write(metrics_of_step(3));
  CHECK(steps_in(path, "train") == std::vector<std::int64_t>{3});
}

TEST_CASE("a line that only half fits on the disk is taken back") {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    Log log(false);
    MetricsWriter writer(path, log);
    writer.write(metrics_of_step(1));
    struct stat status {};
    ::stat(path.c_str(), &status);
    struct rlimit limit {};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(status.st_size) + 10;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    writer.write(metrics_of_step(2));
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    writer.write(metrics_of_step(3));
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(contents_of(path) == metrics_line(metrics_of_step(1)) + '\n' + metrics_line(metrics_of_step(3)) + '\n');
}

TEST_CASE("metrics: a task's line has its measures and is truncated with its step") {
  const TaskMetrics metrics{.name = "a \"b\"",
                            .task = "lambada",
                            .step = 5,
                            .examples = 3,
                            .targets = 7,
                            .measures = {{"loss", 0.5}, {"accuracy", std::nan("")}},
                            .samples = 40,
                            .tokens = 640,
                            .time = 1.5};
  CHECK(metrics_line(metrics) ==
        R"({"kind":"task","name":"a \"b\"","task":"lambada","step":5,"examples":3,"targets":7,"loss":0.5,)"
        R"("accuracy":null,"samples":40,"tokens":640,"time":1.5})");
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  Log log(false);
  MetricsWriter writer(path, log);
  writer.write(EvaluationMetrics{"validation", 5, 3.0});
  writer.write(metrics);
  const std::string whole = contents_of(path);
  CHECK(removed_lines(path, 5, {"validation x", "a \"b\""}) == 0);
  CHECK(removed_lines(path, 5, {kTaskDue + metrics.name}) == 1);
  CHECK(contents_of(path) == metrics_line(EvaluationMetrics{"validation", 5, 3.0}) + "\n");
  write_file(path, whole);
  CHECK(removed_lines(path, 4) == 2);
}

TEST_CASE("the lines of a split's sets go where the split is due again", "[fault-122]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  Log log(false);
  MetricsWriter writer(path, log);
  for (const char* split : {"validation/wiki", "validation", "validations", "test/wiki"}) {
    writer.write(EvaluationMetrics{split, 5, 3.0});
  }
  CHECK(removed_lines(path, 5, {"validation"}) == 2);
  CHECK(contents_of(path) == metrics_line(EvaluationMetrics{"validations", 5, 3.0}) + "\n" +
                                 metrics_line(EvaluationMetrics{"test/wiki", 5, 3.0}) + "\n");
}
