// ActivityBoard: the activities of all ranks of one node in memory that they share, so that any of them can tell what
// all of them are doing, also one that stands still. No messages, no files: MPI's shared memory window.
//
// Owned by MpiSession. Not included above src/distributed/comm.
#pragma once

#include <memory>
#include <vector>

#include "base/core/activity.h"
#include "distributed/comm/mpi_check.h"

namespace megatron {

class ActivityBoard {
 public:
  /// Collective over `local`, the ranks of this node. If there is no memory to share, each rank has only its own
  /// record.
  explicit ActivityBoard(MPI_Comm local);
  ~ActivityBoard();  ///< collective, before MPI_Finalize; not while an exception unwinds: the window then stays
  ActivityBoard(const ActivityBoard&) = delete;
  ActivityBoard& operator=(const ActivityBoard&) = delete;

  Activity& own() { return *own_; }
  const std::vector<Activity*>& all() const { return all_; }  ///< by local rank

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::unique_ptr<Activity> alone_;
  Activity* own_ = nullptr;
  std::vector<Activity*> all_;
};

}  // namespace megatron
