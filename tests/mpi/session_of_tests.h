// Shared by MPI tests: the session that main made, and a way to run a case so that a failing rank ends the job.
#pragma once

#include <cstdio>
#include <exception>

#include "distributed/comm/mpi_session.h"

namespace megatron {

MpiSession& session_of_tests();

/// Runs `body` on this rank. A rank that throws cannot continue with the next case while the others wait for it in this
/// one: it says why and ends the job.
template <class Body>
void run_on_all_ranks(const char* name, Body body) {
  MpiSession& session = session_of_tests();
  try {
    body(session.world());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s: %s\n", session.where().c_str(), name, error.what());
    session.abort(1);
  }
}

}  // namespace megatron
