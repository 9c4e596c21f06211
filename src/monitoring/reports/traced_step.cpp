#include "monitoring/reports/traced_step.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "base/core/error.h"
#include "base/text/foreign_json.h"
#include "base/text/json_reader.h"
#include "base/text/utf8.h"
#include "checkpoint/store/files.h"

namespace megatron {

namespace {

constexpr std::int64_t kLongest = 64 << 20;
constexpr std::uint64_t kMostRanks = 1 << 20;

struct Slice {
  std::string phase, name;
  std::int64_t process = -1;
  double begin = 0, end = 0;  // microseconds
};

double number_at(JsonReader& json, std::string_view text) {
  json.peek();  // past white space
  const std::size_t from = json.position();
  json.skip_value();
  double value = std::numeric_limits<double>::quiet_NaN();
  std::from_chars(text.data() + from, text.data() + json.position(), value);
  return value;
}

Slice read_slice(JsonReader& json, std::string_view text) {
  Slice slice;
  std::string buffer;
  visit_object(json, "an event", [&](std::string_view key) {
    if (key == "ph")
      slice.phase = json.string(buffer);
    else if (key == "name")
      slice.name = json.string(buffer);
    else if (key == "pid")
      slice.process = static_cast<std::int64_t>(json.integer());
    else if (key == "ts")
      slice.begin = number_at(json, text);
    else if (key == "dur")
      slice.end = number_at(json, text);
    else
      json.skip_value();
  });
  slice.end += slice.begin;
  return slice;
}

/// The last step of a stage, as its slices come by.
class StageStep {
 public:
  std::int64_t step = -1;
  double begin = 0, end = 0;
  std::vector<Action> passes;
  std::vector<Simulation::Span> spans;

  void add(const Slice& slice) {
    if (const int number = numbered(slice, "step"); number >= 0) {
      step = number;
      begin = slice.begin;
      end = slice.end;
      passes.clear();
      spans.clear();
      chunk_ = 0;
      waits_ = false;
      return;
    }
    if (step < 0 || slice.begin >= end) return;
    if (const int number = numbered(slice, "chunk"); number >= 0) {
      chunk_ = number;
    } else if (const int pass = numbered(slice, "forward"); pass >= 0) {
      add_pass(Action::Kind::forward, pass, slice);
    } else if (const int back = numbered(slice, "backward"); back >= 0) {
      add_pass(Action::Kind::backward, back, slice);
    } else if (!spans.empty() && slice.begin < spans.back().finish) {
      add_to_pass(slice);
    }
  }

 private:
  static int numbered(const Slice& slice, std::string_view name) {
    if (!std::string_view(slice.name).starts_with(name) || slice.name.size() < name.size() + 2) return -1;
    int number = -1;
    const char* const last = slice.name.data() + slice.name.size();
    const auto [end, error] = std::from_chars(slice.name.data() + name.size() + 1, last, number);
    return error == std::errc() && end == last ? number : -1;
  }
  void add_pass(Action::Kind kind, int micro_batch, const Slice& slice) {
    passes.push_back({.kind = kind, .micro_batch = micro_batch, .chunk = chunk_});
    spans.push_back({slice.begin, slice.end});
    waits_ = true;
  }
  // A pass waits first, for the messages that were sent from its memory and for its inputs, and computes then.
  // Messages within its layers are its own.
  void add_to_pass(const Slice& slice) {
    if (slice.name == "weight gradients") {
      passes.back().kind = Action::Kind::backward_weight;
    } else if (slice.name == "send" || slice.name == "receive") {
      if (waits_) spans.back().start = std::min(slice.end, spans.back().finish);
    } else if (slice.name != "start receive" && slice.name != "progress") {
      waits_ = false;
    }
  }

  int chunk_ = 0;
  bool waits_ = false;  // the last pass has not begun to compute
};

std::optional<TracedStep> put_together(std::vector<StageStep> stages) {
  TracedStep traced{.step = stages[0].step, .passes = {}, .spans = {}};
  double begin = stages[0].begin, end = stages[0].end;
  for (const StageStep& stage : stages) {
    if (stage.step != traced.step || stage.passes.size() != stages[0].passes.size()) return std::nullopt;
    begin = std::min(begin, stage.begin);
    end = std::max(end, stage.end);
  }
  if (traced.step < 0 || stages[0].passes.empty() || !(end > begin)) return std::nullopt;
  traced.seconds = 1e-6 * (end - begin);
  for (StageStep& stage : stages) {
    for (Simulation::Span& span : stage.spans) span = {1e-6 * (span.start - begin), 1e-6 * (span.finish - begin)};
    traced.passes.push_back(std::move(stage.passes));
    traced.spans.push_back(std::move(stage.spans));
  }
  return traced;
}

}  // namespace

std::optional<TracedStep> read_traced_step(const std::string& path) {
  if (file_type(path) == FileType::absent) return std::nullopt;
  const std::string text = read_text_file(path, kLongest);
  verify(first_invalid_utf8(text) == text.size(), ErrorKind::configuration, "{} is not UTF-8", path);
  std::vector<StageStep> stages;  // in the layout that was traced, which need not be the run's present one
  std::int64_t ranks = 0;         // per stage
  bool whole = true;
  try {
    JsonReader json(text);
    const auto count = [&](const char* what) {
      const std::size_t at = json.position();
      const std::uint64_t number = json.integer();
      if (number == 0 || number > kMostRanks) throw JsonError{fmt::format("{} {}", number, what), at};
      return number;
    };
    visit_object(json, "a trace", [&](std::string_view key) {
      if (key == "otherData") {
        visit_object(json, "facts", [&](std::string_view fact) {
          if (fact == "pipeline") {
            stages.resize(count("stages"));
          } else if (fact == "ranks_per_stage") {
            ranks = static_cast<std::int64_t>(count("ranks of a stage"));
          } else if (fact == "dropped_events") {
            visit_array(json, "numbers", [&] { whole &= json.integer() == 0; });
          } else {
            json.skip_value();
          }
        });
      } else if (key == "traceEvents") {
        visit_array(json, "events", [&] {
          const Slice slice = read_slice(json, text);
          if (slice.phase != "X" || ranks == 0 || slice.process < 0 || slice.process % ranks != 0) return;
          const auto stage = static_cast<std::size_t>(slice.process / ranks);
          if (stage < stages.size()) stages[stage].add(slice);
        });
      } else {
        json.skip_value();
      }
    });
    json.expect_end();
  } catch (const JsonError& error) {
    fail(ErrorKind::configuration, "{}: byte {}: {}", path, error.at, error.reason);
  }
  verify(!stages.empty() && ranks > 0, ErrorKind::configuration,
         "{} does not say how many pipeline stages it has, and how many ranks each: no run of this program wrote it",
         path);
  std::optional<TracedStep> traced;
  if (whole) traced = put_together(std::move(stages));
  verify(traced.has_value(), ErrorKind::configuration, "{} has no whole step{}", path,
         whole ? "" : ": events are missing; raise run.trace_events, or trace fewer steps");
  return traced;
}

}  // namespace megatron
