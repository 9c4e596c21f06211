// MPI_CHECK: every MPI call goes through it. Only for src/distributed/comm (and the mains of MPI tests), like <mpi.h>
// itself.
#pragma once

// The C++ bindings, long removed from the standard, would only add symbols to link.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include "base/core/error.h"

namespace megatron {

/// Throws Error(communication) with the expression, MPI's own words and the place unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* expression, SourcePlace where = SourcePlace::current());

}  // namespace megatron

#define MPI_CHECK(call) ::megatron::check_mpi((call), #call)
