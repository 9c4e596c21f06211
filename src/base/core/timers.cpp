#include "base/core/timers.h"

#include <chrono>
#include <numeric>

#include "base/core/error.h"

namespace megatron {

const char* name_of(Section section) {
  switch (section) {
    case Section::forward: return "forward";
    case Section::backward: return "backward";
    case Section::communication: return "communication";
    case Section::optimizer: return "optimizer";
    case Section::data: return "data";
    case Section::saving: return "saving";
    case Section::evaluation: return "evaluation";
    case Section::other: return "other";
  }
  return "?";
}

double Timers::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Timers::charge_current() {
  const double now = clock_();
  seconds_[static_cast<std::size_t>(current())] += now - since_;
  since_ = now;
}

void Timers::enter(Section section, std::int64_t number) {
  internal_check(depth_ + 1 < kMaxDepth, "timer sections are nested too deeply", depth_);
  charge_current();
  stack_[++depth_] = section;
  tell_phase();
  if (ranges_ != nullptr) ranges_->begin(name_of(section), number);
}

void Timers::leave() {
  if (ranges_ != nullptr) ranges_->end();
  charge_current();
  const bool told = current() != Section::communication;
  --depth_;
  if (told) tell_phase();
}

void Timers::tell_phase() {
  if (activity_ != nullptr && current() != Section::communication) activity_->set_phase(name_of(current()));
}

double Timers::seconds(Section section) const {
  const double running = section == current() ? clock_() - since_ : 0;
  return seconds_[static_cast<std::size_t>(section)] + running;
}

double Timers::elapsed_seconds() const {
  return std::accumulate(seconds_.begin(), seconds_.end(), 0.0) + (clock_() - since_);
}

void Timers::reset() {
  seconds_.fill(0);
  since_ = clock_();
}

}  // namespace megatron
