// Thread ranks of a grid that is checked, and tensors for it.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/checked_collectives.h"
#include "support/planted_defects.h"

namespace megatron::test {

constexpr int kElements = 8;

/// A tensor of kElements numbers that differ by `seed`.
struct Numbers {
  std::vector<float> values;
  explicit Numbers(int seed, int count = kElements) {
    for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(std::sin(seed * 31 + i)));
  }
  Tensor tensor() { return {values.data(), {static_cast<std::int64_t>(values.size())}, DType::f32}; }
};

/// The ranks of `shape`, checked to the end.
inline void on_checked_grid(const GridShape& shape, const std::function<void(const ProcessGrid& grid, int rank)>& body,
                            const CommunicationDefect& defect = {}) {
  run_as_threads(shape.ranks(), [&](Communicator& threads) {
    Onset onset;
    DefectiveCommunicator world(threads, defect, onset);
    const ProcessGrid grid(world, shape);
    const Backend backend = make_cpu_backend();
    CheckedCollectives checks(grid, *backend.device);
    body(grid, world.rank());
    checks.finish();
  });
}

/// Tensor 2 x data 2, checked.
inline void on_checked_grid(const std::function<void(const ProcessGrid& grid, int rank)>& body,
                            const CommunicationDefect& defect = {}) {
  on_checked_grid({.tensor = 2, .data = 2}, body, defect);
}

}  // namespace megatron::test
