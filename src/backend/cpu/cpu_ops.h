// CpuOps: the CPU backend of Ops, on a team of threads per rank, which it owns; one source file per family of verbs.
// With the same number of threads every verb gives the same bits in every run; with another number all do but products
// in fp32 and widened ones, which agree to rounding: a thread's part of a product decides the order of its sums.
// Scratch (backend/cpu/working_memory.h) is reserved, or grown on first use and reused: a steady step allocates
// nothing. Not thread-safe: one instance per rank, used by the thread that made it.
#pragma once

#include <cstddef>

#include "backend/cpu/half_products.h"
#include "backend/cpu/thread_team.h"
#include "backend/ops/ops.h"
#include "backend/tensor/memory.h"

namespace megatron {

class CpuOps final : public Ops {
 public:
  /// `threads` per rank, at least 1. Errors are those of ThreadTeam. `products`: such as this processor has.
  explicit CpuOps(Allocator& allocator, int threads = 1,
                  HalfProducts products = choose_half_products(Native16Bit::automatic, processor_features()))
      : allocator_(allocator), team_(threads), products_(products) {}

#define MEGATRON_VERB(name, parameters, arguments) void name parameters override;
  MEGATRON_VERBS(MEGATRON_VERB)
#undef MEGATRON_VERB

  void read(ConstTensor x, void* host) override;

  std::size_t workspace_bytes() const override {
    return scratch_used_;
  }
  void reserve(std::size_t bytes) override;

 private:
  /// At least `bytes` of scratch, valid until the next call; grows, never shrinks.
  std::byte* scratch(std::size_t bytes);

  Allocator& allocator_;
  ThreadTeam team_;
  HalfProducts products_;
  Buffer scratch_;
  std::size_t scratch_used_ = 0;  // the most that was asked for
};

}  // namespace megatron
