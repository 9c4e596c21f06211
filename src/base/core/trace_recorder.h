// TraceRecorder: a profiler that writes down what a rank does and when, in memory that it has from the start. For
// trace.json (src/training/loop/step_trace.h), which is made of the events afterwards. One instance per rank, for one
// thread.
//
// Records only between start() and stop(), outside of all ranges. Events without room are counted, so those that are
// there are the first ones. "progress", which a rank may call in a loop, is one event as long as nothing else happens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/core/ranges.h"

namespace megatron {

/// From `begin` to `end`, in nanoseconds of the recorder's clock.
struct TraceEvent {
  enum class Kind : std::uint8_t { range, operation, start, wait };  ///< an operation of Ops; a Transfer's two
  std::int64_t begin = 0, end = 0;
  const char* name = "";
  const char* group = "";      ///< a transfer's
  std::int64_t number = -1;    ///< a range's; bytes of a transfer
  std::int64_t operation = 0;  ///< number of a transfer
  std::int32_t peer = -1, channel = -1;
  Kind kind = Kind::range;
};

class TraceRecorder final : public Ranges {
 public:
  using Clock = std::function<std::int64_t()>;  ///< nanoseconds from any fixed point, never going back

  static std::int64_t steady_nanoseconds();
  /// Memory for this number of events.
  static std::size_t bytes_for(std::size_t events) { return events * sizeof(TraceEvent); }

  explicit TraceRecorder(std::size_t events, Clock clock = steady_nanoseconds)
      : clock_(std::move(clock)), events_(events) {}
  /// Another profiler, or null, that hears of all ranges too, recorded or not.
  void pass_on_to(Ranges* also) { also_ = also; }

  void start() { recording_ = true; }
  void stop() { recording_ = false; }
  bool recording() const { return recording_; }
  std::int64_t now() const { return clock_(); }
  const Clock& clock() const { return clock_; }

  std::span<const TraceEvent> events() const { return std::span(events_).first(count_); }
  std::int64_t dropped() const { return dropped_; }
  std::size_t bytes() const { return bytes_for(events_.size()); }
  void clear() { count_ = 0, dropped_ = 0, around_progress_ = nullptr; }

  void begin(const char* name, std::int64_t number) override;
  void begin_transfer(const Transfer& transfer) override;
  void end() override;

  /// Records an operation of Ops while it lives.
  class [[nodiscard]] Operation {
   public:
    Operation(TraceRecorder& recorder, const char* name) : recorder_(recorder) {
      if (recorder.recording_) event_ = recorder.open({.name = name, .kind = TraceEvent::Kind::operation});
    }
    ~Operation() {
      if (event_ != nullptr) event_->end = recorder_.clock_();
    }
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

   private:
    TraceRecorder& recorder_;
    TraceEvent* event_ = nullptr;
  };

 private:
  /// Where it is, or null: there was no room.
  TraceEvent* open(const TraceEvent& event);
  TraceEvent* open_progress(const char* name);
  void push(TraceEvent* event);

  const Clock clock_;
  Ranges* also_ = nullptr;
  bool recording_ = false;
  std::vector<TraceEvent> events_;
  std::size_t count_ = 0;
  std::int64_t dropped_ = 0;
  std::array<TraceEvent*, 32> open_{};  // one for each range that has begun and not ended; null: not recorded
  std::size_t depth_ = 0;
  const TraceEvent* around_progress_ = nullptr;  // the range that encloses the last "progress"
};

}  // namespace megatron
