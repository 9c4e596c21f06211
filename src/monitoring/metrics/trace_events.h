// The events of a TraceRecorder as a timeline: one track of slices inside each other, and the communication under way.
// Knows ranks as processes of a picture; where messages go is the caller's to say.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/core/trace_recorder.h"
#include "monitoring/metrics/trace_text.h"

namespace megatron {

struct TracedRank {
  std::int64_t process = 0;
  std::function<std::int64_t(std::int64_t)> align;  ///< times of the recorder's clock to those of the picture
  /// The arrow of the next message to (or from) this peer of a group on a channel; negative: none is drawn.
  std::function<std::int64_t(const TraceEvent& event, bool sends)> arrow;
};

/// Calls `flush` now and then, which may clear the text, and at the end.
void add_events(TraceText& text, std::span<const TraceEvent> events, const TracedRank& rank,
                const std::function<void()>& flush);

/// Calls visit(event, sends) for what is drawn as the ends of messages: sends that are started, and receives that have
/// been waited for, with the channel that they were started on.
void visit_messages(std::span<const TraceEvent> events,
                    const std::function<void(const TraceEvent& event, bool sends)>& visit);

}  // namespace megatron
