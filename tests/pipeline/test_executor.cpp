// The executor with stages that only pass numbers on, so that every value that arrives anywhere is known: who sends
// what to whom, in which order, and that a micro-batch finds in its slot what its own forward left there.
#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "comm/counting_communicator.h"
#include "comm/thread_communicator.h"
#include "ops/counting_ops.h"
#include "ops/device.h"
#include "pipeline/executor.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;
using Kind = Action::Kind;

namespace {

constexpr int kLinks = 2;
constexpr std::int64_t kSequence = 4, kSamples = 2;

// What stage r passes on of a micro-batch on a link: the first stage's number plus 1 + 2 + ... + r.
double forward_value(int micro_batch, int link, int stage) {
  return 1000 * micro_batch + 100 * link + stage * (stage + 1) / 2;
}

// What stage r passes back: the sum of what it and all later stages passed on, taken from their slots.
double backward_value(int micro_batch, int link, int stage, int stages) {
  double sum = 0;
  for (int r = stage; r < stages; ++r) sum += forward_value(micro_batch, link, r);
  return sum;
}

struct Event {
  Kind kind;
  int micro_batch;
  std::vector<double> arrived;  // by link: of a forward, its inputs; of a backward, its output gradients and its inputs
  bool operator==(const Event&) const = default;
};

// All elements' value; NaN if they differ.
double value_of(ConstTensor x) {
  const float* values = x.as<float>();
  for (std::int64_t i = 1; i < x.elements(); ++i) {
    if (values[i] != values[0]) return std::numeric_limits<double>::quiet_NaN();
  }
  return static_cast<double>(values[0]);
}

class FakeStage final : public Stage {
 public:
  struct Saved final : StageSaved {
    StageData in, passed_on;
  };

  /// Without `log` no tensor is read: for sizing.
  FakeStage(int stage, int stages, std::vector<Event>* log) : stage_(stage), stages_(stages), log_(log) {}

  bool first() const override { return stage_ == 0; }
  bool last() const override { return stage_ == stages_ - 1; }
  int links() const override { return kLinks; }
  Shape link_shape(int link, std::int64_t sequence, std::int64_t samples) const override {
    return link == 0 ? Shape{sequence, samples, 3} : Shape{sequence, 7};
  }
  std::unique_ptr<StageSaved> make_saved() const override { return std::make_unique<Saved>(); }

  void forward(Context& context, const StageData& in, const StageData& out, Tensor loss_total,
               StageSaved& stage_saved) const override {
    auto& saved = static_cast<Saved&>(stage_saved);
    saved.in = in;
    saved.passed_on.clear();
    record(Kind::forward, context, {&in});
    const ArenaScope scope(context.scratch);
    context.scratch.allocate("temporary", {64}, DType::f32);
    const auto micro_batch = static_cast<int>(context.micro_batch.first_sample);
    for (int link = 0; link < kLinks; ++link) {
      const auto i = static_cast<std::size_t>(link);
      const Tensor sum = context.saved.allocate("passed on", link_shape(link, kSequence, kSamples), DType::f32);
      context.ops.fill(sum, first() ? forward_value(micro_batch, link, 0) : stage_);
      if (!first()) context.ops.add(in[i], sum);
      if (!last()) context.ops.copy(sum, out[i]);
      saved.passed_on.push_back(sum);
    }
    if (last()) context.ops.square_sum({.x = saved.passed_on[0], .total = loss_total});
  }

  void backward(Context& context, const StageData& dout, const StageData& din, StageSaved& stage_saved) const override {
    const auto& saved = static_cast<Saved&>(stage_saved);
    record(Kind::backward, context, {&dout, &saved.in});
    for (std::size_t link = 0; link < din.size(); ++link) {
      context.ops.copy(saved.passed_on[link], din[link]);
      if (!last()) context.ops.add(dout[link], din[link]);
    }
  }

 private:
  void record(Kind kind, const Context& context, const std::vector<const StageData*>& data) const {
    if (log_ == nullptr) return;
    Event event{kind, static_cast<int>(context.micro_batch.first_sample), {}};
    for (const StageData* tensors : data) {
      for (const Tensor& tensor : *tensors) event.arrived.push_back(value_of(tensor));
    }
    if (context.seed != 5 || context.step != 6) event.micro_batch = -1;
    log_->push_back(event);
  }

  int stage_, stages_;
  std::vector<Event>* log_;
};

std::vector<Event> expected_events(const std::vector<Action>& actions, int stage, int stages) {
  std::vector<Event> events;
  for (const Action& action : actions) {
    Event event{action.kind, action.micro_batch, {}};
    const auto arrive = [&](bool there, const auto& value) {
      for (int link = 0; there && link < kLinks; ++link) event.arrived.push_back(value(link));
    };
    if (action.kind == Kind::backward) {
      arrive(stage < stages - 1, [&](int link) { return backward_value(action.micro_batch, link, stage + 1, stages); });
    }
    arrive(stage > 0, [&](int link) { return forward_value(action.micro_batch, link, stage - 1); });
    events.push_back(event);
  }
  return events;
}

std::vector<MicroBatch> micro_batches(int count) {
  std::vector<MicroBatch> list(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    MicroBatch& batch = list[static_cast<std::size_t>(i)];
    batch.first_sample = i;
    batch.sequence = kSequence;
    batch.samples = kSamples;
  }
  return list;
}

std::size_t planned_slot_bytes(const std::vector<Action>& actions, int stage, int stages, int slots) {
  CountingCommunicator world(stage, stages);
  const ProcessGrid grid(world, {.pipeline = stages});
  const TensorRegion region(grid, false);
  const FakeStage fake(stage, stages, nullptr);
  PipelineExecutor executor(fake, grid, region, slots);
  CountingOps ops;
  Arena scratch("scratch"), loss("loss");
  Timers timers;
  int count = 0;
  for (const Action& action : actions) count = std::max(count, action.micro_batch + 1);
  executor.run(actions, micro_batches(count), {}, ops, scratch, loss.allocate("loss", {1}, DType::f64), timers);
  return executor.slot_bytes();
}

struct RankResults {
  std::vector<Event> events;
  double loss = 0;
  std::size_t planned = 0, used = 0;
};

/// Plays `rounds` lists of schedule(stage, stages, micro_batches) on every stage.
template <class Schedule>
std::vector<RankResults> play(const Schedule& schedule, int stages, int count, int rounds) {
  std::vector<RankResults> results(static_cast<std::size_t>(stages));
  run_as_threads(stages, [&](Communicator& world) {
    const int stage = world.rank();
    RankResults& result = results[static_cast<std::size_t>(stage)];
    const ProcessGrid grid(world, {.pipeline = stages});
    const TensorRegion region(grid, false);
    Backend backend = make_cpu_backend();
    const std::vector<Action> actions = schedule(stage, stages, count);
    const int slots = slot_count(actions);
    result.planned = planned_slot_bytes(actions, stage, stages, slots);
    const FakeStage fake(stage, stages, &result.events);
    PipelineExecutor executor(fake, grid, region, slots, *backend.device, result.planned);
    const Buffer memory(*backend.device, 4096);
    Arena scratch("scratch", memory);
    Owned<double> loss({1});
    Timers timers;
    for (int round = 0; round < rounds; ++round) {
      executor.run(actions, micro_batches(count), {.seed = 5, .step = 6}, *backend.ops, scratch, loss, timers);
    }
    result.loss = loss[0];
    result.used = executor.slot_bytes();
  });
  return results;
}

template <class Schedule>
void check_schedule(const Schedule& schedule) {
  constexpr int kRounds = 2;  // the second finds slots that are no longer fresh
  for (int stages = 1; stages <= 4; ++stages) {
    for (int count = 1; count <= 6; ++count) {
      const std::vector<RankResults> results = play(schedule, stages, count, kRounds);
      double loss = 0;
      for (int i = 0; i < count; ++i) {
        const double value = forward_value(i, 0, stages - 1);
        loss += kRounds * static_cast<double>(kSequence * kSamples * 3) * value * value;
      }
      for (int stage = 0; stage < stages; ++stage) {
        CAPTURE(stages, count, stage);
        const RankResults& result = results[static_cast<std::size_t>(stage)];
        const std::vector<Event> once = expected_events(schedule(stage, stages, count), stage, stages);
        std::vector<Event> all = once;
        all.insert(all.end(), once.begin(), once.end());
        CHECK((result.events == all));
        CHECK(result.loss == (stage == stages - 1 ? loss : 0.0));
        CHECK(result.planned > 0);
        CHECK(result.used == result.planned);
      }
    }
  }
}

}  // namespace

TEST_CASE("GPipe: every micro-batch arrives in order with its values, forwards and backwards, in the planned slots") {
  check_schedule(gpipe);
}

TEST_CASE("1F1B: every micro-batch arrives in order with its values, forwards and backwards, in the planned slots") {
  check_schedule(one_f_one_b);
}

TEST_CASE("forward only: two slots carry any number of micro-batches") {
  check_schedule([](int stage, int stages, int micro_batches) { return forward_only(stage, stages, micro_batches); });
}

TEST_CASE("slots hold what was planned and not a byte more") {
  run_as_threads(1, [](Communicator& world) {
    const ProcessGrid grid(world, {});
    const TensorRegion region(grid, false);
    Backend backend = make_cpu_backend();
    const std::vector<Action> actions = gpipe(0, 1, 3);
    std::vector<Event> log;
    const FakeStage fake(0, 1, &log);
    const std::size_t planned = planned_slot_bytes(actions, 0, 1, 3);
    CHECK(planned == 128 + 128);  // 4·2·3 and 4·7 floats, each in whole blocks of 64 bytes
    PipelineExecutor executor(fake, grid, region, 3, *backend.device, planned - 64);
    const Buffer memory(*backend.device, 4096);
    Arena scratch("scratch", memory);
    Owned<double> loss({1});
    Timers timers;
    CHECK_THROWS_AS(executor.run(actions, micro_batches(3), {}, *backend.ops, scratch, loss, timers), Error);
  });
}

TEST_CASE("time is charged to forward and backward in training, and to evaluation outside it") {
  std::array<double, kSectionCount> training{}, evaluation{};
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, {});
    const TensorRegion region(grid, false);
    Backend backend = make_cpu_backend();
    std::vector<Event> log;
    const FakeStage fake(0, 1, &log);
    PipelineExecutor executor(fake, grid, region, 2, *backend.device, 4096);
    const Buffer memory(*backend.device, 4096);
    Arena scratch("scratch", memory);
    Owned<double> loss({1});
    const auto seconds = [&](const std::vector<Action>& actions, bool is_training) {
      Timers timers;
      executor.run(actions, micro_batches(2), {.training = is_training}, *backend.ops, scratch, loss, timers);
      std::array<double, kSectionCount> result{};
      for (const Section section : {Section::forward, Section::backward, Section::evaluation}) {
        result[static_cast<std::size_t>(section)] = timers.seconds(section);
      }
      return result;
    };
    training = seconds(one_f_one_b(0, 1, 2), true);
    evaluation = seconds(forward_only(0, 1, 2), false);
  });
  const auto at = [](const auto& seconds, Section section) { return seconds[static_cast<std::size_t>(section)]; };
  CHECK(at(training, Section::forward) > 0);
  CHECK(at(training, Section::backward) > 0);
  CHECK(at(training, Section::evaluation) == 0);
  CHECK(at(evaluation, Section::evaluation) > 0);
  CHECK(at(evaluation, Section::forward) == 0);
}

TEST_CASE("backwards that are cut in two are refused, not half played") {
  const Kind kind = GENERATE(Kind::backward_input, Kind::backward_weight);
  std::string message;
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, {});
    const TensorRegion region(grid, false);
    Backend backend = make_cpu_backend();
    std::vector<Event> log;
    const FakeStage fake(0, 1, &log);
    PipelineExecutor executor(fake, grid, region, 1, *backend.device, 4096);
    const Buffer memory(*backend.device, 4096);
    Arena scratch("scratch", memory);
    Owned<double> loss({1});
    Timers timers;
    try {
      executor.run({{.kind = Kind::forward}, {.kind = kind}}, micro_batches(1), {}, *backend.ops, scratch, loss,
                   timers);
    } catch (const Error& error) {
      message = error.what();
    }
  });
  CHECK(message.find("cut in two") != std::string::npos);
}
