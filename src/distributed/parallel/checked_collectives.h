// CheckedCollectives: a check of every group of a grid, for as long as it lives. For tests and for --verify: runs are
// slower with it, and have the same bits.
#pragma once

#include <memory>
#include <vector>

#include "backend/ops/device.h"
#include "distributed/comm/process_grid.h"

namespace megatron {

class CheckedCollectives {
 public:
  /// `device` has the tensors of the grid's groups. Both must outlive the check. Collective over the grid.
  CheckedCollectives(const ProcessGrid& grid, Device& device);
  ~CheckedCollectives();
  CheckedCollectives(const CheckedCollectives&) = delete;
  CheckedCollectives& operator=(const CheckedCollectives&) = delete;

 private:
  struct Checked {
    Communicator* group;
    std::unique_ptr<CollectiveCheck> check;
  };

  std::vector<Checked> checked_;
};

}  // namespace megatron
