#include "distributed/parallel/checked_collectives.h"

namespace megatron {

CheckedCollectives::CheckedCollectives(const ProcessGrid& grid, Device& device) {
  const auto add = [&](Communicator& group, Device* of_tensors) {
    const int rank = grid.world().rank();
    checked_.push_back(
        {&group, std::make_unique<GroupCheck>(grid.shape(), rank, group, of_tensors, /*moved=*/grid.tensor())});
  };
  for (Communicator* group : grid.groups()) {
    add(*group, group == &grid.control() || device.is_host_memory() ? nullptr : &device);
  }
  add(grid.world(), nullptr);
  for (const Checked& checked : checked_) checked.group->set_check(checked.check.get());
}

CheckedCollectives::~CheckedCollectives() {
  for (const Checked& checked : checked_) checked.group->set_check(nullptr);
}

void CheckedCollectives::finish() {
  for (const Checked& checked : checked_) checked.check->finish();
}

}  // namespace megatron
