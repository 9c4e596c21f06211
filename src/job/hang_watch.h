// HangWatch: ends a job of which a rank has been in one and the same operation for too long, and says who does what.
//
// A thread that looks at the activities of all ranks of its node. Every rank has one, since the rank that hangs may be
// one whose threads all stand still; the first to see it speaks for the node. What it prints is one table, those ranks
// included that cannot speak. Nodes have only the time between the table and the abort, a tenth of the limit, to print
// theirs: in a hang all ranks soon wait for one another.
//
// An operation is what begins or ends with a change of an Activity: waiting in one communication, or the computation,
// reading or writing between two of them. A rank that says that it is patient is not judged. Time for which the
// watching process itself did not run (a suspended job) does not count.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/activity.h"

namespace megatron {

class HangWatch {
 public:
  struct Settings {
    double limit_seconds = 0;  ///< above 0
    std::string host;
    std::function<void(const std::string& text)> print;
    std::function<void()> abort;  ///< ends the job; a minute later the process ends itself with 6
  };

  /// `own` is one of `ranks`; all must outlive the watch.
  HangWatch(Activity& own, std::vector<Activity*> ranks, std::int32_t rank, Settings settings);
  ~HangWatch();  ///< this rank has come to its end and is not watched any more
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

 private:
  struct Seen {
    std::uint64_t changes = 0;
    double seconds = 0;  // since a change was seen
  };
  void watch();
  void look(double seconds);
  double longest() const;
  std::string table() const;
  bool wait(double seconds);

  Activity& own_;
  std::vector<Activity*> ranks_;
  Settings settings_;
  double interval_;
  std::vector<Seen> seen_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace megatron
