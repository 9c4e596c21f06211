// CUDA_CHECK: every call of the CUDA runtime goes through it. Only for cuda/, like CUDA's own headers.
#pragma once

#include <cuda_runtime.h>

#include "base/core/error.h"

namespace megatron {

/// Throws Error with the expression, CUDA's own words, the place and what to do unless `code` is cudaSuccess: a device
/// without memory is a matter of configuration, all else is internal.
void check_cuda(cudaError_t code, const char* expression, SourcePlace where = SourcePlace::current());

}  // namespace megatron

#define CUDA_CHECK(call) ::megatron::check_cuda((call), #call)
