#include "base/core/activity.h"

#include <fmt/format.h>

namespace megatron {

const char* name_of(Verb verb) {
  switch (verb) {
    case Verb::none: return "nothing";
    case Verb::all_reduce: return "all-reduce";
    case Verb::all_gather: return "all-gather";
    case Verb::reduce_scatter: return "reduce-scatter";
    case Verb::broadcast: return "broadcast";
    case Verb::all_to_all: return "all-to-all";
    case Verb::send: return "send";
    case Verb::receive: return "receive";
    case Verb::barrier: return "barrier";
    case Verb::split: return "split";
  }
  return "?";
}

std::string describe(const Activity& activity) {
  const Waiting waiting = activity.waiting();
  std::string text = fmt::format("step {}, {}, ", activity.step(), activity.phase().data());
  if (waiting.verb == Verb::none) return text + "not waiting for other ranks";
  text += fmt::format("waits in {} '{}'", name_of(waiting.verb), activity.group().data());
  if (waiting.bytes > 0) text += fmt::format(" of {} bytes", waiting.bytes);
  if (waiting.verb == Verb::send) text += fmt::format(" to its rank {}", waiting.peer);
  if (waiting.verb == Verb::receive) text += fmt::format(" from its rank {}", waiting.peer);
  if (waiting.verb == Verb::broadcast) text += fmt::format(" from its rank {}", waiting.peer);
  return text;
}

}  // namespace megatron
