#include "base/trace_recorder.h"

#include <chrono>

#include "base/timers.h"

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

void TraceRecorder::push(TraceEvent* event) {
  if (depth_ < open_.size()) open_[depth_] = event;
  ++depth_;
}

void TraceRecorder::begin(const char* name, std::int64_t number) {
  if (also_ != nullptr) also_->begin(name, number);
  // Waiting for others is told again as what it is for.
  const bool told = name == name_of(Section::communication);
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
