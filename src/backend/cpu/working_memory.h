// The workspace of the CPU's verbs, in bytes: asked by the verbs themselves and by plans. A function
// of shapes, dtypes and the number of threads alone, that never shrinks when an extent grows. All other verbs need
// nothing.
#pragma once

#include <cstddef>

#include "backend/ops/ops.h"

namespace megatron {

std::size_t matmul_bytes(const MatmulArgs& args, int threads);
std::size_t attention_forward_bytes(const AttentionForwardArgs& args, int threads);
std::size_t attention_backward_bytes(const AttentionBackwardArgs& args, int threads);
std::size_t plan_routes_bytes(const PlanRoutesArgs& args);

}  // namespace megatron
