// CheckedCollectives: a check of every group of a grid, for as long as it lives. For tests and for --verify: runs are
// slower with it, and have the same bits.
#pragma once

#include <memory>
#include <vector>

#include "distributed/parallel/group_check.h"

namespace megatron {

class CheckedCollectives {
 public:
  /// `device` has the tensors of the grid's groups. Both must outlive the check. Collective over the grid.
  CheckedCollectives(const ProcessGrid& grid, Device& device);
  /// Compares nothing, since it may run on a rank alone, where something else has failed. No calls may be in flight.
  ~CheckedCollectives();
  CheckedCollectives(const CheckedCollectives&) = delete;
  CheckedCollectives& operator=(const CheckedCollectives&) = delete;

  /// Compares the results of each group's last calls, which no later call has compared: for the end of a run. No sums
  /// may be in flight. Collective over the grid; throws as the checks do.
  void finish();

 private:
  struct Checked {
    Communicator* group;
    std::unique_ptr<GroupCheck> check;
  };

  std::vector<Checked> checked_;
};

}  // namespace megatron
