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

// What the r-th piece of the model passes on of a micro-batch on a link: the first piece's number plus 1 + 2 + ... + r.
double forward_value(int micro_batch, int link, int piece) {
  return 1000 * micro_batch + 100 * link + piece * (piece + 1) / 2;
}

// What the r-th piece passes back: the sum of what it and all later pieces passed on, taken from their slots.
double backward_value(int micro_batch, int link, int piece, int pieces) {
  double sum = 0;
  for (int r = piece; r < pieces; ++r) sum += forward_value(micro_batch, link, r);
  return sum;
}

struct Event {
  Kind kind;
  int micro_batch, piece;
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
  FakeStage(int piece, int pieces, std::vector<Event>* log) : piece_(piece), pieces_(pieces), log_(log) {}

  bool first() const override { return piece_ == 0; }
  bool last() const override { return piece_ == pieces_ - 1; }
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
      context.ops.fill(sum, first() ? forward_value(micro_batch, link, 0) : piece_);
      if (!first()) context.ops.add(in[i], sum);
      if (!last()) context.ops.copy(sum, out[i]);
      saved.passed_on.push_back(sum);
    }
    if (last()) context.ops.square_sum({.x = saved.passed_on[0], .total = loss_total});
  }

  void backward(Context& context, const StageData& dout, const StageData& din, StageSaved& stage_saved) const override {
    const auto& saved = static_cast<Saved&>(stage_saved);
    record(context.weight_work == nullptr ? Kind::backward : Kind::backward_input, context, {&dout, &saved.in});
    for (std::size_t link = 0; link < din.size(); ++link) {
      context.ops.copy(saved.passed_on[link], din[link]);
      if (!last()) context.ops.add(dout[link], din[link]);
    }
  }

  void backward_weight(Context& context, WeightWork&, StageSaved& stage_saved) const override {
    record(Kind::backward_weight, context, {&static_cast<Saved&>(stage_saved).in});
  }

 private:
  void record(Kind kind, const Context& context, const std::vector<const StageData*>& data) const {
    if (log_ == nullptr) return;
    Event event{kind, static_cast<int>(context.micro_batch.first_sample), piece_, {}};
    for (const StageData* tensors : data) {
      for (const Tensor& tensor : *tensors) event.arrived.push_back(value_of(tensor));
    }
    if (context.seed != 5 || context.step != 6) event.micro_batch = -1;
    log_->push_back(event);
  }

  int piece_, pieces_;
  std::vector<Event>* log_;
};

int chunks_of(const std::vector<Action>& actions) {
  int chunks = 1;
  for (const Action& action : actions) chunks = std::max(chunks, action.chunk + 1);
  return chunks;
}

std::vector<Event> expected_events(const std::vector<Action>& actions, int stage, int stages) {
  std::vector<Event> events;
  const int pieces = stages * chunks_of(actions);
  for (const Action& action : actions) {
    const int piece = action.chunk * stages + stage;
    Event event{action.kind, action.micro_batch, piece, {}};
    const auto arrive = [&](bool there, const auto& value) {
      for (int link = 0; there && link < kLinks; ++link) event.arrived.push_back(value(link));
    };
    if (action.kind == Kind::backward || action.kind == Kind::backward_input) {
      arrive(piece < pieces - 1, [&](int link) { return backward_value(action.micro_batch, link, piece + 1, pieces); });
    }
    arrive(piece > 0, [&](int link) { return forward_value(action.micro_batch, link, piece - 1); });
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

/// A stage's chunks, which note what arrives.
class FakeChunks {
 public:
  FakeChunks(int stage, int stages, int chunks, std::vector<Event>* log) {
    for (int chunk = 0; chunk < chunks; ++chunk) stages_.emplace_back(chunk * stages + stage, chunks * stages, log);
  }
  PipelineExecutor::Chunks pointers() const {
    PipelineExecutor::Chunks pointers;
    for (const FakeStage& stage : stages_) pointers.push_back(&stage);
    return pointers;
  }

 private:
  std::vector<FakeStage> stages_;
};

ExecutorMemory planned_memory(const std::vector<Action>& actions, int stage, int stages) {
  CountingCommunicator world(stage, stages);
  const ProcessGrid grid(world, {.pipeline = stages});
  const TensorRegion region(grid, false);
  const FakeChunks fakes(stage, stages, chunks_of(actions), nullptr);
  PipelineExecutor executor(fakes.pointers(), grid, region);
  CountingOps ops;
  Arena scratch("scratch"), loss("loss");
  Timers timers;
  int count = 0;
  for (const Action& action : actions) count = std::max(count, action.micro_batch + 1);
  executor.run(actions, micro_batches(count), {}, ops, scratch, loss.allocate("loss", {1}, DType::f64), timers);
  const std::vector<Action>* const list[] = {&actions};
  return executor.memory_for(list);
}

struct RankResults {
  std::vector<Event> events;
  double loss = 0;
  ExecutorMemory planned, used;
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
    result.planned = planned_memory(actions, stage, stages);
    const FakeChunks fakes(stage, stages, chunks_of(actions), &result.events);
    PipelineExecutor executor(fakes.pointers(), grid, region, result.planned, *backend.device);
    const Buffer memory(*backend.device, 4096);
    Arena scratch("scratch", memory);
    Owned<double> loss({1});
    Timers timers;
    for (int round = 0; round < rounds; ++round) {
      executor.run(actions, micro_batches(count), {.seed = 5, .step = 6}, *backend.ops, scratch, loss, timers);
    }
    result.loss = loss[0];
    result.used = executor.used();
  });
  return results;
}

template <class Schedule>
void check_schedule(const Schedule& schedule, int chunks = 1) {
  constexpr int kRounds = 2;  // the second finds slots that are no longer fresh
  for (int stages = chunks == 1 ? 1 : 2; stages <= 4; ++stages) {
    for (int count = 1; count <= 6; ++count) {
      const std::vector<RankResults> results = play(schedule, stages, count, kRounds);
      double loss = 0;
      for (int i = 0; i < count; ++i) {
        const double value = forward_value(i, 0, stages * chunks - 1);
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
        CHECK(result.planned.slots.at(0) > 0);
        CHECK((result.used == result.planned));
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

TEST_CASE("interleaved: every micro-batch goes round the ring in order with its values, for any number of them") {
  for (const int chunks : {2, 3}) {
    check_schedule(
        [&](int stage, int stages, int micro_batches) { return interleaved(stage, stages, micro_batches, chunks); },
        chunks);
    check_schedule(
        [&](int stage, int stages, int micro_batches) { return forward_only(stage, stages, micro_batches, chunks); },
        chunks);
  }
}

TEST_CASE("zero bubble: gradients pass before the weights' share, which finds its micro-batch's slot as it was") {
  check_schedule(zero_bubble);
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
    ExecutorMemory planned = planned_memory(actions, 0, 1);
    CHECK(planned.slots == std::vector<std::size_t>(3, 128 + 128));  // 4·2·3 and 4·7 floats in blocks of 64 bytes
    CHECK(planned.gradient_buffers.empty());                         // there is nobody to send one to
    planned.slots[1] -= 64;
    PipelineExecutor executor({&fake}, grid, region, planned, *backend.device);
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
    PipelineExecutor executor({&fake}, grid, region, {{4096, 4096}, {}}, *backend.device);
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
