#include "monitoring/metrics/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace megatron {

namespace {

using Kind = TraceEvent::Kind;

constexpr std::size_t kPiece = 1 << 20;  // bytes of text

bool is(const TraceEvent& event, Verb verb) {
  return std::strcmp(event.name, name_of(verb)) == 0;
}

const char* category_of(const char* range) {
  const auto is = [range](const char* name) { return std::strcmp(range, name) == 0; };
  if (is("layer") || is("embedding") || is("head")) return "layer";
  return is("progress") ? "communication" : "phase";
}

// By operation, the start of what is waited for.
using Starts = std::unordered_map<std::int64_t, const TraceEvent*>;

const TraceEvent* start_of(const TraceEvent& wait, const Starts& starts) {
  const auto found = starts.find(wait.operation);
  return found == starts.end() ? nullptr : found->second;
}

// The wait with the channel of its start.
TraceEvent with_channel(TraceEvent wait, const TraceEvent& start) {
  wait.channel = start.channel;
  return wait;
}

TraceSlice slice_of(const TraceEvent& event, const TracedRank& rank) {
  TraceSlice slice{.begin = rank.align(event.begin), .end = rank.align(event.end), .name = event.name, .category = {}};
  slice.end = std::max(slice.end, slice.begin);
  switch (event.kind) {
    case Kind::range:
      slice.category = category_of(event.name);
      if (event.number >= 0) slice.name += fmt::format(" {}", event.number);
      break;
    case Kind::operation: slice.category = "operation"; break;
    case Kind::start:
    case Kind::wait:
      slice.category = "communication";
      if (event.kind == Kind::start) slice.name = "start " + slice.name;
      slice.arguments =
          fmt::format("\"group\":\"{}\",\"bytes\":{},\"operation\":{}", event.group, event.number, event.operation);
      if (event.peer >= 0) slice.arguments += fmt::format(",\"peer\":{}", event.peer);
  }
  return slice;
}

// From its start to the end of the wait for it.
TraceSlice under_way(const TraceEvent& start, const TraceEvent& wait, const TracedRank& rank) {
  TraceSlice slice = slice_of(start, rank);
  slice.end = std::max(slice.begin, rank.align(wait.end));
  slice.name = fmt::format("{}: {}", start.group, start.name);
  slice.category = "under way";
  return slice;
}

}  // namespace

void visit_messages(std::span<const TraceEvent> events, const std::function<void(const TraceEvent&, bool)>& visit) {
  Starts starts;
  for (const TraceEvent& event : events) {
    if (event.kind == Kind::start && is(event, Verb::send)) visit(event, true);
    if (event.kind == Kind::start && is(event, Verb::receive)) starts[event.operation] = &event;
    if (event.kind != Kind::wait || !is(event, Verb::receive)) continue;
    if (const TraceEvent* start = start_of(event, starts)) visit(with_channel(event, *start), false);
  }
}

void add_events(TraceText& text, std::span<const TraceEvent> events, const TracedRank& rank,
                const std::function<void()>& flush) {
  const TraceTrack track{rank.process};
  Starts starts, waits;
  for (const TraceEvent& event : events) {
    if (event.kind == Kind::wait) waits[event.operation] = &event;
  }
  for (const TraceEvent& event : events) {
    const TraceSlice slice = slice_of(event, rank);
    text.slice(track, slice);
    if (event.kind == Kind::start) {
      starts[event.operation] = &event;
      if (is(event, Verb::send)) {
        if (const std::int64_t number = rank.arrow(event, true); number >= 0)
          text.arrow_leaves(track, slice.begin, number);
      }
      if (const TraceEvent* wait = start_of(event, waits)) {
        text.under_way_begins(rank.process, under_way(event, *wait, rank), event.operation);
      }
    } else if (const TraceEvent* start = event.kind == Kind::wait ? start_of(event, starts) : nullptr) {
      if (is(event, Verb::receive)) {
        const std::int64_t number = rank.arrow(with_channel(event, *start), false);
        if (number >= 0) text.arrow_arrives(track, last_moment(slice), number);
      }
      text.under_way_ends(rank.process, under_way(*start, event, rank), event.operation);
    }
    if (text.text().size() > kPiece) flush();
  }
  flush();
}

}  // namespace megatron
