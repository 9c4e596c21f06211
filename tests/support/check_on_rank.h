// CHECK_ON_RANK: a check in what several ranks run at the same time. Test frameworks are not thread-safe, so it throws,
// and run_as_threads() throws on.
#pragma once

#include "base/core/error.h"

#define CHECK_ON_RANK(...) ::megatron::internal_check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__)
