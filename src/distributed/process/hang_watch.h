// HangWatch: ends a job of which a rank has been in one and the same operation for too long, and says who does what.
//
// A thread of each rank that looks at the activities of all ranks of its host; the first to see a hang speaks for the
// host, in one table. A rank that computes, reads or writes is at work however long it takes, and those that wait for
// it are not judged, on other hosts neither: HangWords. Nor is a rank that says that it is patient, and time for which
// the watching process itself did not run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/core/activity.h"
#include "distributed/comm/process_grid.h"
#include "distributed/process/hang_words.h"
#include "distributed/process/process_state.h"

namespace megatron {

class HangWatch {
 public:
  struct Settings {
    double limit_seconds = 0;  ///< above 0
    double least_grace = 2;    ///< seconds from the table to the abort, if a tenth of the limit is less
    std::string host;
    std::vector<std::string> hosts = {};  ///< by rank of the job, if the folder is given
    std::string folder = {};              ///< for HangWords
    std::string job = {};
    std::function<void(const std::string& text)> print;
    std::function<void()> abort;  ///< ends the job; a while later the process ends itself with 6
  };

  /// `own` is one of `ranks`; all must outlive the watch.
  HangWatch(Activity& own, std::vector<Activity*> ranks, std::int32_t rank, Settings settings);
  ~HangWatch();  ///< this rank has come to its end and is not watched any more
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

  /// From here on the table can name other ranks by their place in the grid, and words are left in `folder`, if there
  /// is one in the settings. Where a device computes, its passes are not the host's work: a thread that waits for the
  /// device looks busy.
  void know(const GridShape& shape, bool device_computes, const std::string& folder);

 private:
  struct Seen {
    std::uint64_t changes = 0;
    ThreadWork work;
    double seconds = 0;  // since a change was seen
    double idle = 0;     // the part of `seconds` since it was last seen at work
  };
  struct Grid {
    GridShape shape;
    bool device_computes = false;
    std::string folder;
  };
  void watch();
  void move_words();
  /// True if the job is to be aborted.
  bool report_and_wait(const std::function<bool()>& look_again);
  void look(double seconds);
  bool at_work(const Activity& activity, Seen& seen, double seconds) const;
  double longest() const;
  bool active(std::size_t index) const;  ///< moves, or is at work
  bool hangs() const;
  void say_that_it_works(double seconds);
  /// The first host that works; nothing if none does.
  std::optional<std::string> working_host();
  /// That the job is aborted, and which hosts have left no word; of the first host that has left one.
  std::string last_words();
  std::string table() const;
  std::string line(std::size_t index) const;
  bool wait(double seconds);

  Activity& own_;
  std::vector<Activity*> ranks_;
  std::size_t own_index_;
  Settings settings_;
  const double interval_, grace_;
  std::vector<Seen> seen_;
  HangWords words_;
  double since_word_ = 0;
  bool said_works_ = false;
  mutable std::mutex mutex_;  // guards the three below
  bool stop_ = false;
  std::optional<Grid> grid_;
  bool moves_words_ = false;  // to the grid's folder
  std::condition_variable stopped_;
  std::thread thread_;
};

}  // namespace megatron
