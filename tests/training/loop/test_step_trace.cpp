// trace.json of whole runs: what is in it on every layout, what it leaves as it was, and runs that stop, resume, skip
// or have no room for it; and clocks that are far apart.
#include <chrono>
#include <thread>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/trace_check.h"
#include "training/loop/step_trace.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct TracedRun {
  ShardFolder folder;
  Config config = tiny_config();

  explicit TracedRun(int pipeline = 2, int tensor = 1, int data = 1) {
    config.data.train = make_corpus(folder);
    config.train.steps = 4;
    config.checkpoint.every_steps = 2;
    config.checkpoint.keep_last = 0;
    config.parallel.pipeline = pipeline;
    config.parallel.tensor = tensor;
    config.parallel.data = data;
    config.run.directory = folder.file("run");
    config.run.trace_steps = {2, 3};
  }
  LoopResult run() const {
    LoopResult result = run_loop(config);
    for (const std::string& told : result.told) REQUIRE(told == "");
    return result;
  }
  std::string path() const { return config.run.directory + "/trace.json"; }
  bool written() const { return std::filesystem::exists(path()); }
  CheckedTrace trace() const { return TraceCheck::of(contents_of(path())); }
};

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<nlohmann::json> without_times(std::vector<nlohmann::json> lines) {
  for (nlohmann::json& line : lines) {
    for (const char* timing :
         {"time", "step_seconds", "tokens_per_second", "model_tflops_per_rank", "hardware_tflops_per_rank"}) {
      line.erase(timing);
    }
  }
  return lines;
}

std::map<std::string, std::string> all_rank_files(const Config& config) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(config.run.directory + "/checkpoints")) {
    if (entry.path().extension() != ".h5") continue;
    files[entry.path().lexically_relative(config.run.directory).string()] = contents_of(entry.path().string());
  }
  return files;
}

}  // namespace

TEST_CASE("step trace: every rank's passes and layers and arrows between stages") {
  struct Case {
    const char* schedule;
    int pipeline, tensor, data, chunks;
  };
  for (const Case& one : {Case{"1f1b", 1, 1, 1, 1}, Case{"1f1b", 2, 1, 1, 1}, Case{"gpipe", 2, 1, 2, 1},
                          Case{"zero_bubble", 2, 1, 1, 1}, Case{"interleaved", 2, 1, 1, 2}, Case{"1f1b", 2, 2, 1, 1}}) {
    CAPTURE(one.schedule, one.pipeline, one.tensor, one.data);
    TracedRun traced(one.pipeline, one.tensor, one.data);
    traced.config.parallel.schedule = one.schedule;
    traced.config.parallel.virtual_stages = one.chunks;
    const LoopResult result = traced.run();
    CHECK(mentions(result.log, "trace of steps 2 to 3: " + traced.path()));
    // Threads need no staging for their sums, which the plan has for several ranks.
    CHECK_FALSE(mentions(result.log, "not as predicted"));
    CHECK((one.tensor * one.pipeline > 1 || mentions(result.log, "as predicted, to the byte")));
    const CheckedTrace trace = traced.trace();
    CHECK(trace.facts.at("steps") == nlohmann::json{2, 3});
    const int ranks = one.pipeline * one.tensor * one.data, steps = 2, micro_batches = 8 / one.data;
    const bool split = std::string(one.schedule) == "zero_bubble";
    REQUIRE(trace.processes.size() == static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      CAPTURE(rank);
      CHECK(trace.count(rank, "step") == steps);
      CHECK(trace.count(rank, "forward") == steps * micro_batches * one.chunks);
      CHECK(trace.count(rank, "backward") == steps * micro_batches * one.chunks * (split ? 2 : 1));
      CHECK(trace.count(rank, "weight gradients") == (split ? steps * micro_batches : 0));
      CHECK(trace.count(rank, "optimizer") == steps);
      CHECK(trace.within(rank, "forward", "step"));
      CHECK(trace.within(rank, "adamw", "optimizer"));
      CHECK(trace.within(rank, "attention_forward", "layer"));
      CHECK(trace.facts.at("dropped_events").at(static_cast<std::size_t>(rank)) == 0);
      // Each of 4 layers has the same number, in a forward and a backward of every micro-batch.
      CHECK(trace.count(rank, "attention_forward") == steps * micro_batches * 4 / one.pipeline);
      // Gradient sums are moved along while the rank computes, where there are some.
      CHECK((trace.count(rank, "progress") > 0) == (one.data > 1 || one.pipeline > 1));
      // Two sums in each of two layers, forwards and backwards.
      if (one.tensor > 1) CHECK(trace.count(rank, "start all-reduce") >= steps * micro_batches * 8);
    }
    // Outputs and gradients of each micro-batch, between chunks that follow each other.
    const int links = one.pipeline * one.chunks - 1;
    CHECK(trace.arrows.size() == static_cast<std::size_t>(2 * links * steps * micro_batches * one.tensor * one.data));
    if (links > 0) CHECK(trace.arrives_in == std::set<std::string>{"layer"});
    if (ranks > 1) CHECK(trace.under_way > 0);
  }
}

TEST_CASE("step trace: processes are named with their place") {
  TracedRun traced(2, 1, 2);
  traced.run();
  CHECK(traced.trace().processes.at(3) == "rank 3: tensor 0, data 1, pipeline 1");
}

TEST_CASE("step trace: a run has the same bits with and without it") {
  TracedRun with(2, 2), without(2, 2);
  without.config.run.trace_steps = {};
  const LoopResult traced = with.run(), plain = without.run();
  CHECK(without_times(traced.metrics) == without_times(plain.metrics));
  CHECK(all_rank_files(with.config) == all_rank_files(without.config));
  CHECK(all_rank_files(with.config).size() > 2);
  CHECK_FALSE(without.written());
}

TEST_CASE("step trace: without room for all events it says how many are missing") {
  TracedRun traced;
  traced.config.run.trace_events = 300;
  const LoopResult result = traced.run();
  const CheckedTrace trace = traced.trace();
  for (const std::size_t rank : {0U, 1U}) {
    CHECK(trace.facts.at("events").at(rank) == 300);
    CHECK(trace.facts.at("dropped_events").at(rank) > 300);
    CHECK(trace.slices.at(static_cast<std::int64_t>(rank)).size() == 300);
  }
  CHECK(trace.arrows.size() > 2);
  CHECK(mentions(result.log, "trace.json lacks the last"));
  CHECK(mentions(result.log, "raise run.trace_events"));
}

TEST_CASE("step trace: a stopped run writes its steps and a resume the others") {
  TracedRun traced;
  traced.config.train.stop_after = 2;
  traced.run();
  CHECK(traced.trace().facts.at("steps") == nlohmann::json{2, 2});
  CHECK(traced.trace().count(0, "step") == 1);
  traced.config.train.stop_after = 3;
  traced.run();
  CHECK(traced.trace().facts.at("steps") == nlohmann::json{3, 3});
  const std::string kept = contents_of(traced.path());
  traced.config.train.stop_after = 0;
  const LoopResult result = traced.run();  // after them
  CHECK(contents_of(traced.path()) == kept);
}

TEST_CASE("step trace: a run that ends early or is not traced writes none") {
  TracedRun traced;
  traced.config.train.stop_after = 1;
  const LoopResult result = traced.run();
  CHECK_FALSE(traced.written());
  CHECK_FALSE(mentions(result.log, "trace of"));
}

TEST_CASE("step trace: a file that cannot be written is a warning") {
  TracedRun traced;
  std::filesystem::create_directories(traced.path() + "/in the way");
  const LoopResult result = traced.run();
  CHECK(mentions(result.log, "there is no trace of steps 2 to 3"));
  CHECK(result.metrics.size() == 5);  // and the validation at the end
  for (const auto& entry : std::filesystem::directory_iterator(traced.config.run.directory)) {
    CHECK_FALSE(mentions(entry.path().filename().string(), ".tmp"));
  }
}

TEST_CASE("step trace: on a device times are of launches") {
  TracedRun traced(1);
  traced.config.run.device = "cuda";
  const LoopResult result = traced.run();
  CHECK_FALSE(mentions(result.log, "not as predicted"));
  CHECK(mentions(traced.trace().facts.at("times").get<std::string>(), "launched"));
}

TEST_CASE("step trace: events are planned on the host or where the rest is") {
  Config config = tiny_config();
  const std::size_t bytes = TraceRecorder::bytes_for(static_cast<std::size_t>(config.run.trace_events));
  for (const char* device : {"cpu", "cuda"}) {
    config.run.device = device;
    config.run.trace_steps = {};
    const MemoryPlan without = plan_memory(config, {}, {});
    config.run.trace_steps = {1, 2};
    const MemoryPlan with = plan_memory(config, {}, {});
    const bool on_host = config.run.device == "cpu";
    CHECK(with.total() == without.total() + (on_host ? bytes : 0));
    CHECK(with.host == without.host + (on_host ? 0 : bytes));
  }
}

TEST_CASE("step trace: clocks that differ and drift are aligned") {
  constexpr std::int64_t kSkews[] = {7'000'000'000, -2'000'000'000, 0, 31'000'000};
  constexpr double kRates[] = {1, 1.2, 1, 0.85};  // seconds of the clock per second
  TracedRun traced(4);
  std::filesystem::create_directories(traced.config.run.directory);
  Config config = traced.config;
  config.parallel.data = 1;
  run_as_threads(4, [&](Communicator& world) {
    const ProcessGrid grid(world, {.pipeline = 4});
    Backend backend = make_cpu_backend();
    Log log(world.rank() == 0);
    const std::int64_t skew = kSkews[world.rank()], origin = TraceRecorder::steady_nanoseconds();
    const double rate = kRates[world.rank()];
    StepTrace trace(config, grid, backend, log, [=] {
      const auto passed = static_cast<double>(TraceRecorder::steady_nanoseconds() - origin);
      return origin + skew + static_cast<std::int64_t>(rate * passed);
    });
    Timers timers;
    timers.set_ranges(backend.ops->ranges());
    TrafficMeter meter{.timers = &timers};
    grid.pipeline().set_meter(&meter);
    const int rank = world.rank();
    for (std::int64_t step = 1; step <= 4; ++step) {
      trace.before_step(step);
      for (int round = 0; round < 5; ++round) {
        const Timers::Scope forward(timers, Section::forward, round);
        float value = 1;
        const Tensor message(&value, {1}, DType::f32);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        if (rank > 0) grid.pipeline().start_receive(message, rank - 1, 0, kPassedOn).wait();
        const Range layer(timers.ranges(), "layer", round);
        if (rank < 3) grid.pipeline().start_send(message, rank + 1, 0, kPassedOn).wait();
      }
      trace.after_step(step);
    }
    trace.finish();
    grid.pipeline().set_meter(nullptr);
  });
  const CheckedTrace trace = traced.trace();  // arrows arrive after they leave, to within the clocks' error
  CHECK(trace.arrows.size() == 3 * 5 * 2);
  for (const std::int64_t error : trace.facts.at("clock_error_ns")) CHECK(error < 1'000'000'000);
  for (int rank = 0; rank < 4; ++rank) CHECK(trace.slices.at(rank).front().begin < 1'000'000'000);
}
