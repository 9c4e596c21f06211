// HDF5_CHECK: turns a failed HDF5 call into an Error with the call and the library's own explanation. Private to the
// .cpp files of this layer; hold the lock around it, so that the explanation belongs to the call.
#pragma once

#include <cstdint>
#include <string>

#include "base/core/error.h"

namespace megatron {

/// Throws an Error unless value >= 0. Says "WHERE: CALL failed: HDF5's innermost reason". A full disk, a missing
/// permission and the like are ErrorKind::filesystem whatever `kind` says.
void check_hdf5(std::int64_t value, ErrorKind kind, const std::string& where, const char* call);

/// Evaluates to the call's value.
#define HDF5_CHECK(kind, where, call)                   \
  [&](auto value_) {                                    \
    ::megatron::check_hdf5(value_, kind, where, #call); \
    return value_;                                      \
  }(call)

}  // namespace megatron
