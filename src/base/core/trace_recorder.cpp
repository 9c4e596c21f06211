#include "base/core/trace_recorder.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/core/timers.h"

namespace megatron {

std::int64_t TraceRecorder::steady_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TraceEvent* TraceRecorder::open(const TraceEvent& event) {
  if (count_ == events_.size()) {
    ++dropped_;
    return nullptr;
  }
  TraceEvent& place = events_[count_++];
  place = event;
  place.begin = place.end = clock_();
  return &place;
}

// Continues the last event, if that is one of these in the same range. The section of communication is around it.
TraceEvent* TraceRecorder::open_progress(const char* name) {
  const TraceEvent* around = nullptr;
  for (std::size_t i = std::min(depth_, open_.size()); i-- > 0 && around == nullptr;) around = open_[i];
  const bool follows = count_ > 0 && dropped_ == 0 && std::strcmp(events_[count_ - 1].name, name) == 0;
  if (follows && around != nullptr && around == around_progress_) return &events_[count_ - 1];
  around_progress_ = around;
  return open({.name = name});
}

void TraceRecorder::push(TraceEvent* event) {
  if (depth_ < open_.size()) open_[depth_] = event;
  ++depth_;
}

void TraceRecorder::begin(const char* name, std::int64_t number) {
  if (also_ != nullptr) also_->begin(name, number);
  // Waiting for others is told again as what it is for.
  const bool told = name == name_of(Section::communication);
  if (recording_ && std::strcmp(name, "progress") == 0) return push(open_progress(name));
  push(recording_ && !told ? open({.name = name, .number = number}) : nullptr);
}

void TraceRecorder::begin_transfer(const Transfer& transfer) {
  if (also_ != nullptr) also_->begin_transfer(transfer);
  push(!recording_ ? nullptr
                   : open({.name = name_of(transfer.what.verb),
                           .group = transfer.group,
                           .number = transfer.what.bytes,
                           .operation = transfer.operation,
                           .peer = transfer.what.peer,
                           .channel = transfer.channel,
                           .kind = transfer.starts ? TraceEvent::Kind::start : TraceEvent::Kind::wait}));
}

void TraceRecorder::end() {
  --depth_;
  if (depth_ < open_.size() && open_[depth_] != nullptr) open_[depth_]->end = clock_();
  if (also_ != nullptr) also_->end();
}

}  // namespace megatron
