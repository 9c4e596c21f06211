// The executor with stages that only pass numbers on, so that every value that arrives anywhere is known: who sends
// what to whom, in which order, and that a micro-batch finds in its slot what its own forward left there.
#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "backend/ops/backends.h"
#include "backend/ops/counting_ops.h"
#include "backend/ops/device.h"
#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "training/pipeline/executor.h"

using namespace megatron;
using namespace megatron::test;
using Kind = Action::Kind;

namespace {

constexpr std::int64_t kSequence = 4, kEncoderSequence = 7, kSamples = 2;
constexpr Link kMain{Stream::main, 3}, kEncoder{Stream::encoder, 1};

// A model of two streams in a row of pieces: the encoder's begins in the first piece, the main one in piece `split`, as
// a decoder's does after its encoder.
struct TwoStreams {
  int split = 0;

  int first_piece(Stream stream) const { return stream == Stream::main ? split : 0; }
  // Links between piece and piece + 1.
  std::vector<Link> links_behind(int piece) const {
    if (piece < 0) return {};
    return piece < split ? std::vector{kEncoder} : std::vector{kMain, kEncoder};
  }
};

// Value that the r-th piece passes on for a micro-batch on a stream: a distinct number where the stream begins, and r
// more in every piece after that.
double forward_value(const TwoStreams& model, int micro_batch, Stream stream, int piece) {
  const auto triangle = [](int n) { return n * (n + 1) / 2; };
  return 1000 * micro_batch + 100 * static_cast<int>(stream) + triangle(piece) - triangle(model.first_piece(stream));
}

// Value that the r-th piece passes back: the sum of the values that it and all later pieces passed on, taken from their
// slots.
double backward_value(const TwoStreams& model, int micro_batch, Stream stream, int piece, int pieces) {
  double sum = 0;
  for (int r = piece; r < pieces; ++r) sum += forward_value(model, micro_batch, stream, r);
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
  FakeStage(const TwoStreams& model, int piece, int pieces, std::vector<Event>* log)
      : model_(model),
        piece_(piece),
        receives_(model.links_behind(piece - 1)),
        here_(model.links_behind(piece)),
        sends_(piece + 1 < pieces ? here_ : std::vector<Link>()),
        log_(log) {}

  std::span<const Link> receives() const override { return receives_; }
  std::span<const Link> sends() const override { return sends_; }
  std::unique_ptr<StageSaved> make_saved() const override { return std::make_unique<Saved>(); }

  void forward(Context& context, const StageData& in, const StageData& out, StageSaved& stage_saved) const override {
    auto& saved = static_cast<Saved&>(stage_saved);
    saved.in = in;
    saved.passed_on.clear();
    record(Kind::forward, context, {&in});
    const ArenaScope scope(context.scratch);
    context.scratch.allocate("temporary", {64}, DType::f32);
    const auto micro_batch = static_cast<int>(context.micro_batch.first_sample);
    for (std::size_t link = 0; link < here_.size(); ++link) {
      const Stream stream = here_[link].stream;
      const Shape shape{context.on(stream).rows().sequence, kSamples, here_[link].width};
      const Tensor sum = context.saved->allocate("passed on", shape, DType::f32);
      const std::size_t from = received(stream);
      context.ops.fill(sum, from == in.size() ? forward_value(model_, micro_batch, stream, piece_) : piece_);
      if (from < in.size()) context.ops.add(in[from], sum);
      if (!last()) context.ops.copy(sum, out[link]);
      saved.passed_on.push_back(sum);
    }
    if (last()) context.ops.square_sum({.x = saved.passed_on[0], .total = context.loss_sum(0)});
  }

  void backward(Context& context, const StageData& dout, const StageData& din, StageSaved& stage_saved) const override {
    const auto& saved = static_cast<Saved&>(stage_saved);
    record(context.weight_gradients->deferred() ? Kind::backward_input : Kind::backward, context, {&dout, &saved.in});
    for (std::size_t link = 0; link < here_.size(); ++link) {
      const std::size_t to = received(here_[link].stream);
      if (to == din.size()) continue;  // the stream begins here
      context.ops.copy(saved.passed_on[link], din[to]);
      if (!last()) context.ops.add(dout[link], din[to]);
    }
  }

  void backward_weight(Context& context, DeferredWeightGradients&, StageSaved& stage_saved) const override {
    record(Kind::backward_weight, context, {&static_cast<Saved&>(stage_saved).in});
  }

 private:
  void record(Kind kind, const Context& context, const std::vector<const StageData*>& data) const {
    if (log_ == nullptr) return;
    Event event{kind, static_cast<int>(context.micro_batch.first_sample), piece_, {}};
    for (const StageData* tensors : data) {
      for (const Tensor& tensor : *tensors) event.arrived.push_back(value_of(tensor));
    }
    if (context.pass.seed != 5 || context.pass.step != 6) event.micro_batch = -1;
    log_->push_back(event);
  }

  // The place of a stream in what this piece receives; one past the last if it does not.
  std::size_t received(Stream stream) const {
    const auto at =
        std::find_if(receives_.begin(), receives_.end(), [&](const Link& link) { return link.stream == stream; });
    return static_cast<std::size_t>(at - receives_.begin());
  }

  TwoStreams model_;
  int piece_;
  std::vector<Link> receives_, here_, sends_;
  std::vector<Event>* log_;
};

int chunks_of(const std::vector<Action>& actions) {
  int chunks = 1;
  for (const Action& action : actions) chunks = std::max(chunks, action.chunk + 1);
  return chunks;
}

std::vector<Event> expected_events(const TwoStreams& model, const std::vector<Action>& actions, int stage, int stages) {
  std::vector<Event> events;
  const int pieces = stages * chunks_of(actions);
  for (const Action& action : actions) {
    const int piece = action.chunk * stages + stage;
    Event event{action.kind, action.micro_batch, piece, {}};
    if ((action.kind == Kind::backward || action.kind == Kind::backward_input) && piece < pieces - 1) {
      for (const Link& link : model.links_behind(piece)) {
        event.arrived.push_back(backward_value(model, action.micro_batch, link.stream, piece + 1, pieces));
      }
    }
    for (const Link& link : model.links_behind(piece - 1)) {
      event.arrived.push_back(forward_value(model, action.micro_batch, link.stream, piece - 1));
    }
    events.push_back(event);
  }
  return events;
}

std::vector<MicroBatch> micro_batches(int count) {
  std::vector<MicroBatch> list(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    MicroBatch& batch = list[static_cast<std::size_t>(i)];
    batch.first_sample = i;
    batch.main.sequence = kSequence;
    batch.encoder.sequence = kEncoderSequence;
    batch.samples = kSamples;
  }
  return list;
}

/// A stage's chunks, which note what arrives.
class FakeChunks {
 public:
  FakeChunks(const TwoStreams& model, int stage, int stages, int chunks, std::vector<Event>* log) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      stages_.emplace_back(model, chunk * stages + stage, chunks * stages, log);
    }
  }
  PipelineExecutor::Chunks pointers() const {
    PipelineExecutor::Chunks pointers;
    for (const FakeStage& stage : stages_) pointers.push_back(&stage);
    return pointers;
  }

 private:
  std::vector<FakeStage> stages_;
};

ExecutorMemory planned_memory(const TwoStreams& model, const std::vector<Action>& actions, int stage, int stages) {
  CountingCommunicator world(stage, stages);
  const ProcessGrid grid(world, {.pipeline = stages});
  const TensorRegion region(grid, false);
  const FakeChunks fakes(model, stage, stages, chunks_of(actions), nullptr);
  PipelineExecutor executor(fakes.pointers(), grid, region, {&actions});
  CountingOps ops;
  Arena scratch("scratch"), loss("loss");
  Timers timers;
  int count = 0;
  for (const Action& action : actions) count = std::max(count, action.micro_batch + 1);
  executor.run(actions, micro_batches(count), {.loss_sums = loss.allocate("loss", {1}, DType::f64)}, ops, scratch,
               timers);
  return executor.memory_for({&actions});
}

struct RankResults {
  std::vector<Event> events;
  double loss = 0;
  ExecutorMemory planned, used;
};

/// Plays `rounds` lists of schedule(stage, stages, micro_batches) on every stage.
template <class Schedule>
std::vector<RankResults> play(const TwoStreams& model, const Schedule& schedule, int stages, int count, int rounds) {
  std::vector<RankResults> results(static_cast<std::size_t>(stages));
  run_as_threads(stages, [&](Communicator& world) {
    const int stage = world.rank();
    RankResults& result = results[static_cast<std::size_t>(stage)];
    const ProcessGrid grid(world, {.pipeline = stages});
    const TensorRegion region(grid, false);
    Backend backend = make_cpu_backend();
    const std::vector<Action> actions = schedule(stage, stages, count);
    result.planned = planned_memory(model, actions, stage, stages);
    const FakeChunks fakes(model, stage, stages, chunks_of(actions), &result.events);
    PipelineExecutor executor(fakes.pointers(), grid, region, result.planned, *backend.device);
    const Buffer memory(*backend.device, 4096);
    Arena scratch("scratch", memory);
    Owned<double> loss({1});
    Timers timers;
    for (int round = 0; round < rounds; ++round) {
      executor.run(actions, micro_batches(count), {.seed = 5, .step = 6, .loss_sums = loss}, *backend.ops, scratch,
                   timers);
    }
    result.loss = loss[0];
    result.used = executor.used();
  });
  return results;
}

bool buffers_fit(const std::vector<std::size_t>& used, const std::vector<std::size_t>& planned, bool exactly) {
  if (exactly) return used == planned;
  return std::equal(used.begin(), used.end(), planned.begin(), planned.end(), std::less_equal<>());
}

template <class Schedule>
void check_schedule(const Schedule& schedule, const TwoStreams& model, int chunks) {
  constexpr int kRounds = 2;  // the second finds slots that are no longer fresh
  for (int stages = chunks == 1 ? 1 : 2; stages <= 4; ++stages) {
    if (model.split >= stages * chunks) continue;  // there is no main stream
    for (int count = 1; count <= 6; ++count) {
      const std::vector<RankResults> results = play(model, schedule, stages, count, kRounds);
      double loss = 0;
      for (int i = 0; i < count; ++i) {
        const double value = forward_value(model, i, Stream::main, stages * chunks - 1);
        loss += kRounds * static_cast<double>(kSequence * kSamples * 3) * value * value;
      }
      for (int stage = 0; stage < stages; ++stage) {
        CAPTURE(stages, count, stage);
        const RankResults& result = results[static_cast<std::size_t>(stage)];
        const std::vector<Event> once = expected_events(model, schedule(stage, stages, count), stage, stages);
        std::vector<Event> all = once;
        all.insert(all.end(), once.begin(), once.end());
        CHECK((result.events == all));
        CHECK(result.loss == (stage == stages - 1 ? loss : 0.0));
        CHECK(result.planned.slots.at(0) > 0);
        CHECK(result.used.slots == result.planned.slots);
        // Each is large enough for the largest chunk's, which not every one of them must have carried.
        const bool alike = model.split == 0 || chunks == 1;
        CHECK(buffers_fit(result.used.gradient_buffers, result.planned.gradient_buffers, alike));
      }
    }
  }
}

/// With both streams from the first piece on, and with a main stream that begins in a later one.
template <class Schedule>
void check_schedule(const Schedule& schedule, int chunks = 1) {
  for (const int split : {0, 1, 2}) check_schedule(schedule, TwoStreams{split}, chunks);
}

}  // namespace

TEST_CASE("GPipe: micro-batches arrive in order in the planned slots") {
  check_schedule(gpipe);
}

TEST_CASE("1F1B: micro-batches arrive in order in the planned slots") {
  check_schedule(one_f_one_b);
}

TEST_CASE("interleaved: any number of micro-batches goes round the ring in order") {
  for (const int chunks : {2, 3}) {
    check_schedule(
        [&](int stage, int stages, int micro_batches) { return interleaved(stage, stages, micro_batches, chunks); },
        chunks);
    check_schedule(
        [&](int stage, int stages, int micro_batches) { return forward_only(stage, stages, micro_batches, chunks); },
        chunks);
  }
}

TEST_CASE("zero bubble: weight gradients find their slot as it was") {
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
    const FakeStage fake({}, 0, 1, &log);
    ExecutorMemory planned = planned_memory({}, actions, 0, 1);
    CHECK(planned.slots == std::vector<std::size_t>(3, 128 + 64));  // 4·2·3 and 7·2·1 floats in blocks of 64 bytes
    CHECK(planned.gradient_buffers.empty());                        // there is no rank to send one to
    planned.slots[1] -= 64;
    PipelineExecutor executor({&fake}, grid, region, planned, *backend.device);
    const Buffer memory(*backend.device, 4096);
    Arena scratch("scratch", memory);
    Owned<double> loss({1});
    Timers timers;
    CHECK_THROWS_AS(executor.run(actions, micro_batches(3), {.loss_sums = loss}, *backend.ops, scratch, timers), Error);
  });
}

TEST_CASE("executor: time counts as forward and backward or as evaluation") {
  std::array<double, kSectionCount> training{}, evaluation{};
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, {});
    const TensorRegion region(grid, false);
    Backend backend = make_cpu_backend();
    std::vector<Event> log;
    const FakeStage fake({}, 0, 1, &log);
    PipelineExecutor executor({&fake}, grid, region, {{4096, 4096}, {}}, *backend.device);
    const Buffer memory(*backend.device, 4096);
    Arena scratch("scratch", memory);
    Owned<double> loss({1});
    const auto seconds = [&](const std::vector<Action>& actions, bool is_training) {
      Timers timers;
      executor.run(actions, micro_batches(2), {.training = is_training, .loss_sums = loss}, *backend.ops, scratch,
                   timers);
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
