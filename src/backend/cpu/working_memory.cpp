#include "backend/cpu/working_memory.h"

#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/backends.h"
#include "backend/ops/counting_ops.h"
#include "backend/ops/device.h"

namespace megatron {

namespace {

class CpuCountingOps final : public CountingOps {
 public:
  explicit CpuCountingOps(int threads) : threads_(threads) {}

  void matmul(const MatmulArgs& args) override {
    CountingOps::matmul(args);
    record_workspace(matmul_bytes(args, threads_));
  }
  void attention_forward(const AttentionForwardArgs& args) override {
    CountingOps::attention_forward(args);
    record_workspace(attention_forward_bytes(args, threads_));
  }
  void attention_backward(const AttentionBackwardArgs& args) override {
    CountingOps::attention_backward(args);
    record_workspace(attention_backward_bytes(args, threads_));
  }
  void plan_routes(const PlanRoutesArgs& args) override { record_workspace(plan_routes_bytes(args)); }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<CountingOps> make_cpu_counting_ops(int threads) {
  return std::make_unique<CpuCountingOps>(threads);
}

std::byte* CpuOps::scratch(std::size_t bytes) {
  scratch_used_ = std::max(scratch_used_, bytes);
  if (bytes > scratch_.bytes()) {
    scratch_ = Buffer();  // given back first: old and new need not fit side by side
    scratch_ = Buffer(allocator_, bytes);
  }
  return scratch_.data();
}

void CpuOps::reserve(std::size_t bytes) {
  scratch_used_ = 0;
  if (bytes == scratch_.bytes()) return;
  scratch_ = Buffer();
  if (bytes > 0) scratch_ = Buffer(allocator_, bytes);
}

}  // namespace megatron
