#include "training/loop/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "backend/ops/traced_ops.h"
#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "base/text/text.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/gather.h"
#include "monitoring/metrics/trace_events.h"
#include "training/loop/hang_watch_pause.h"

namespace megatron {

namespace {

constexpr int kPieces = 1;    // the world's channel for them
constexpr int kChannels = 2;  // between stages: outputs and gradients

using MessageCounts = std::map<std::string, std::int64_t>;

// Messages are counted by who sends, who receives, and the channel: the n-th that is received is the n-th that was
// sent.
std::string key_of(int from, int to, int channel) {
  return fmt::format("{} {} {}", from, to, channel);
}

bool between_stages(const TraceEvent& event) {
  return std::string_view(event.group) == "pipeline" && event.channel >= 0 && event.channel < kChannels;
}

std::string error_in_words(std::int64_t nanoseconds) {
  return fmt::format("{:.1f} us", 1e-3 * static_cast<double>(nanoseconds));
}

}  // namespace

struct StepTrace::Row {
  std::string name;
  std::int64_t begin = 0, clock_error = 0;  // on rank 0's clock, in nanoseconds
  std::size_t events = 0;
  std::int64_t dropped = 0;  // events
  MessageCounts sends, receives;

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Row, name, begin, clock_error, events, dropped, sends, receives)
};

// Facts that all ranks know of each other.
struct StepTrace::Table {
  std::vector<Row> rows;                                         // by rank
  std::int64_t zero = std::numeric_limits<std::int64_t>::max();  // the first rank's beginning
  std::int64_t error = 0;                                        // the largest error of the clocks

  explicit Table(std::vector<Row> of) : rows(std::move(of)) {
    for (const Row& row : rows) {
      zero = std::min(zero, row.begin);
      error = std::max(error, row.clock_error);
    }
  }
  template <class T>
  std::vector<T> all(T Row::*member) const {
    std::vector<T> values;
    for (const Row& row : rows) values.push_back(row.*member);
    return values;
  }
  std::int64_t count(int rank, MessageCounts Row::*way, const std::string& key) const {
    const MessageCounts& counts = rows[static_cast<std::size_t>(rank)].*way;
    const auto found = counts.find(key);
    return found == counts.end() ? 0 : found->second;
  }
};

StepTrace::StepTrace(const Config& config, const ProcessGrid& grid, Backend& backend, Log& log,
                     const TraceRecorder::Clock& clock)
    : grid_(grid),
      world_(grid.world()),
      log_(log),
      path_(config.run.directory + "/trace.json"),
      times_of_launches_(!backend.device->is_host_memory()),
      first_(config.run.trace_steps.empty() ? 0 : config.run.trace_steps[0]),
      last_(config.run.trace_steps.empty() ? 0 : config.run.trace_steps[1]) {
  if (last_ == 0) return;
  agree(world_,
        [&] { recorder_ = std::make_shared<TraceRecorder>(static_cast<std::size_t>(config.run.trace_events), clock); });
  backend.ops = with_trace(std::move(backend.ops), recorder_);
}

void StepTrace::before_step(std::int64_t step) {
  if (!recorder_ || recorder_->recording()) return;
  if (first_step_ > 0) write();
  if (step < first_ || step > last_) return;
  before_ = measure_clock_offset(world_, recorder_->clock());
  world_.barrier();  // waiting in the clocks' messages is no part of the step
  first_step_ = step;
  began_ = recorder_->now();
  recorder_->start();
}

void StepTrace::after_step(std::int64_t step) {
  step_ = step;
  if (recorder_ && step >= last_) recorder_->stop();
}

void StepTrace::finish() {
  if (first_step_ == 0) return;
  recorder_->stop();
  write();
}

// Clocks may run apart, evenly: what is between the two measurements lies on a line, unless they are as far apart as
// they can be by their errors.
std::int64_t StepTrace::align(std::int64_t time) const {
  const std::int64_t apart = after_.ahead - before_.ahead;
  const bool drifts = std::abs(apart) > before_.error + after_.error && after_.read > before_.read;
  const double share =
      drifts ? static_cast<double>(time - before_.read) / static_cast<double>(after_.read - before_.read) : 0.5;
  return time - before_.ahead - static_cast<std::int64_t>(share * static_cast<double>(apart));
}

int StepTrace::other_rank(int stage) const {
  GridCoordinates other = grid_.at();
  other.pipeline = stage;
  return rank_of(other, grid_.shape());
}

std::string StepTrace::place() const {
  const GridCoordinates& at = grid_.at();
  const GridShape& shape = grid_.shape();
  return fmt::format("rank {}: tensor {}, {}data {}, pipeline {}", world_.rank(), at.tensor,
                     shape.context > 1 ? fmt::format("context {}, ", at.context) : "", at.data, at.pipeline);
}

StepTrace::Row StepTrace::own_row() const {
  Row row{.name = place(),
          .begin = align(began_),
          .clock_error = std::max(before_.error, after_.error),
          .events = recorder_->events().size(),
          .dropped = recorder_->dropped(),
          .sends = {},
          .receives = {}};
  visit_messages(recorder_->events(), [&](const TraceEvent& event, bool is_sent) {
    if (!between_stages(event)) return;
    const int other = other_rank(event.peer);
    if (is_sent)
      ++row.sends[key_of(world_.rank(), other, event.channel)];
    else
      ++row.receives[key_of(other, world_.rank(), event.channel)];
  });
  return row;
}

void StepTrace::add_own(const std::function<void(const std::string&)>& piece, const Table& table) const {
  const int rank = world_.rank();
  TraceText text;
  text.name_process(rank, table.rows[static_cast<std::size_t>(rank)].name);
  text.name_thread({rank}, "computing");
  MessageCounts drawn;
  const TracedRank traced{
      .process = rank,
      .align = [&](std::int64_t time) { return std::max<std::int64_t>(0, align(time) - table.zero); },
      .arrow = [&](const TraceEvent& event, bool sends) -> std::int64_t {
        if (!between_stages(event)) return -1;
        const int other = other_rank(event.peer), from = sends ? rank : other, to = sends ? other : rank;
        const std::string key = key_of(from, to, event.channel);
        const std::int64_t number = drawn[key]++;
        // An end that found no room has no arrow.
        if (number >= std::min(table.count(from, &Row::sends, key), table.count(to, &Row::receives, key))) return -1;
        return (number * world_.size() + from) * kChannels + event.channel + 1;
      }};
  add_events(text, recorder_->events(), traced, [&] {
    piece(text.text());
    text.clear();
  });
}

void StepTrace::write() {
  const HangWatchPause pause(world_, "trace");  // rank 0 takes one rank's events after the other's
  after_ = measure_clock_offset(world_, recorder_->clock());
  const Table table(gather_on_all(world_, own_row()));
  Communicator& host = world_.host();
  if (world_.rank() == 0) {
    write_file(table);
  } else {
    const auto send = [&](const std::string& piece) {
      double length = static_cast<double>(piece.size());
      host.start_send(ConstTensor(&length, {1}, DType::f64), 0, kPieces, kReport).wait();
      if (piece.empty()) return;
      host.start_send(ConstTensor(piece.data(), {static_cast<std::int64_t>(piece.size())}, DType::u8), 0, kPieces,
                      kReport)
          .wait();
    };
    add_own(
        [&](const std::string& piece) {
          if (!piece.empty()) send(piece);
        },
        table);
    send("");
  }
  world_.barrier();
  recorder_->clear();
  first_step_ = 0;
}

// Rank 0 takes all that the others send, also if the file fails: they wait in their sends.
void StepTrace::write_file(const Table& table) {
  std::optional<TraceFile> file;
  std::string failure;
  const auto guarded = [&](const std::function<void()>& work) {
    if (!failure.empty()) return;
    try {
      work();
    } catch (const std::exception& error) {
      failure = error.what();
    }
  };
  const nlohmann::json facts = {
      {"program", "megatron_train"},
      {"steps", {first_step_, step_}},
      {"pipeline", grid_.shape().pipeline},
      {"ranks_per_stage", world_.size() / grid_.shape().pipeline},
      {"ranks", table.all(&Row::name)},
      {"clock_error_ns", table.all(&Row::clock_error)},
      {"events", table.all(&Row::events)},
      {"dropped_events", table.all(&Row::dropped)},
      {"times", times_of_launches_
                    ? "of the host: operations are launched when their slice says, and run on the device later"
                    : "of the host, which computes"}};
  remove_temporaries({path_});
  guarded([&] { file.emplace(OutputFile{.option = "run.trace", .path = path_, .force = true}, facts); });
  add_own([&](const std::string& piece) { guarded([&] { file->write(piece); }); }, table);
  Communicator& host = world_.host();
  for (int other = 1; other < world_.size(); ++other) {
    for (double length = 1; length > 0;) {
      host.start_receive(Tensor(&length, {1}, DType::f64), other, kPieces, kReport).wait();
      std::string piece(static_cast<std::size_t>(length), ' ');
      if (piece.empty()) break;
      host.start_receive(Tensor(piece.data(), {static_cast<std::int64_t>(piece.size())}, DType::u8), other, kPieces,
                         kReport)
          .wait();
      guarded([&] { file->write(piece); });
    }
  }
  guarded([&] { file->publish(); });
  if (!failure.empty()) return log_.warning("there is no trace of steps {} to {}: {}", first_step_, step_, failure);
  log_.info("trace of steps {} to {}: {}{}; open it with https://ui.perfetto.dev", first_step_, step_, path_,
            world_.size() > 1 ? ", clocks of ranks to within " + error_in_words(table.error) : "");
  for (std::size_t rank = 0; rank < table.rows.size(); ++rank) {
    if (table.rows[rank].dropped == 0) continue;
    log_.warning("trace.json lacks the last {} of rank {}{}: raise run.trace_events, or trace fewer steps",
                 counted(table.rows[rank].dropped, "event"), rank,
                 rank + 1 < table.rows.size() ? " (later ranks may too)" : "");
    break;
  }
}

}  // namespace megatron
