// CUBLAS_CHECK: every call of cuBLASLt goes through it. Only for cuda/, like CUDA's own headers.
#pragma once

#include <cublasLt.h>

#include "base/core/error.h"

namespace megatron {

/// Advice on what to do about a status.
const char* cublas_advice(cublasStatus_t status);

/// Throws Error(internal) with the expression, cuBLASLt's own words, the place and what to do unless `status` is
/// CUBLAS_STATUS_SUCCESS.
void check_cublas(cublasStatus_t status, const char* expression, SourcePlace where = SourcePlace::current());

/// A heuristic's whole answer as one status: success if the first of `found` algorithms can be used, whose `state` says
/// so; CUBLAS_STATUS_NOT_SUPPORTED if there is none; anything else went wrong.
cublasStatus_t status_of_search(cublasStatus_t status, int found, cublasStatus_t state);

}  // namespace megatron

#define CUBLAS_CHECK(call) ::megatron::check_cublas((call), #call)
