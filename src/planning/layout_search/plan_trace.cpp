#include "planning/layout_search/plan_trace.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "monitoring/metrics/trace_text.h"
#include "planning/layout_search/plan_report.h"

namespace megatron {

namespace {

using Kind = Action::Kind;

std::int64_t nanoseconds(double seconds) {
  return std::llround(1e9 * seconds);
}

std::string name_of(const Action& action, int chunks) {
  const char* kind = action.kind == Kind::forward           ? "forward"
                     : action.kind == Kind::backward_weight ? "weight gradients"
                                                            : "backward";
  return fmt::format("{} {}{}", kind, action.micro_batch, chunks > 1 ? fmt::format(" of chunk {}", action.chunk) : "");
}

// Messages between stages by what they carry: outputs or gradients, of which micro-batch, between which two of the
// model's chunks, the first of which sends outputs.
class Messages {
 public:
  Messages(int stages, int chunks) : stages_(stages), last_(stages * chunks - 1) {}

  /// The message that an action receives or sends; negative: none.
  std::int64_t received(int stage, const Action& action) {
    const int place = action.chunk * stages_ + stage;
    if (action.kind == Kind::forward) return place == 0 ? -1 : number(true, action.micro_batch, place - 1);
    return action.kind == Kind::backward_weight || place == last_ ? -1 : number(false, action.micro_batch, place);
  }
  std::int64_t sent(int stage, const Action& action) {
    const int place = action.chunk * stages_ + stage;
    if (action.kind == Kind::forward) return place == last_ ? -1 : number(true, action.micro_batch, place);
    return action.kind == Kind::backward_weight || place == 0 ? -1 : number(false, action.micro_batch, place - 1);
  }

 private:
  std::int64_t number(bool outputs, int micro_batch, int place) {
    const auto next = static_cast<std::int64_t>(numbers_.size()) + 1;
    return numbers_.try_emplace({outputs, micro_batch, place}, next).first->second;
  }

  const int stages_, last_;
  std::map<std::tuple<bool, int, int>, std::int64_t> numbers_;
};

}  // namespace

void write_plan_trace(const PlannedLayout& layout, const Hardware& hardware, const OutputFile& output) {
  const RecordedLayout& recorded = layout.recorded;
  const StepTime& time = layout.time;
  const auto stages = static_cast<int>(recorded.schedules.size());
  const auto chunks = static_cast<int>(recorded.config.parallel.virtual_stages);
  const Simulation simulation = simulate_step(recorded, hardware);
  TraceFile file(output, {{"program", "megatron_plan"},
                          {"hardware", hardware.name},
                          {"software", hardware.software_name},
                          {"step_seconds", time.seconds},
                          {"times", "predicted; gradient sums, between the passes and the update, are not drawn"}});
  Messages messages(stages, chunks);
  for (int stage = 0; stage < stages; ++stage) {
    const auto row = static_cast<std::size_t>(stage);
    const TraceTrack track{stage};
    TraceText text;
    text.name_process(stage, fmt::format("stage {}, predicted", stage));
    text.name_thread(track, "computing");
    for (std::size_t i = 0; i < recorded.schedules[row].size(); ++i) {
      const Action& action = recorded.schedules[row][i];
      const Simulation::Span& span = simulation.spans[row][i];
      const TraceSlice slice{.begin = nanoseconds(span.start),
                             .end = nanoseconds(span.finish),
                             .name = name_of(action, chunks),
                             .category = "phase"};
      if (const std::int64_t number = messages.received(stage, action); number >= 0) {
        text.arrow_arrives(track, std::max<std::int64_t>(0, slice.begin - 1), number);
      }
      text.slice(track, slice);
      if (const std::int64_t number = messages.sent(stage, action); number >= 0) {
        text.arrow_leaves(track, last_moment(slice), number);
      }
    }
    text.slice(track, {.begin = nanoseconds(time.seconds - time.update_seconds),
                       .end = nanoseconds(time.seconds),
                       .name = "optimizer",
                       .category = "phase"});
    file.write(text.text());
  }
  file.publish();
}

}  // namespace megatron
