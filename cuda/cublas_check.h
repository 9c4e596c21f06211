// CUBLAS_CHECK: every call of cuBLASLt goes through it. Only for cuda/, like CUDA's own headers.
#pragma once

#include <cublasLt.h>

#include "base/error.h"

namespace megatron {

/// What to do about a status.
const char* cublas_advice(cublasStatus_t status);

/// Throws Error(internal) with the expression, cuBLASLt's own words, the place and what to do unless `status` is
/// CUBLAS_STATUS_SUCCESS.
void check_cublas(cublasStatus_t status, const char* expression, SourcePlace where = SourcePlace::current());

/// Of a heuristic's answer: whether it says that there is no algorithm, and not that anything went wrong.
bool says_there_is_none(cublasStatus_t status, int found);

}  // namespace megatron

#define CUBLAS_CHECK(call) ::megatron::check_cublas((call), #call)
