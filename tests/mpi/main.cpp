// The MPI tests run on every rank of a job at once, so the session is made here. Ranks other than 0 are silent unless
// they fail.
#include <cstdio>

#include "mpi/session_of_tests.h"
#include "support/session.h"

namespace {
megatron::MpiSession* the_session = nullptr;
}

megatron::MpiSession& megatron::session_of_tests() {
  return *the_session;
}

int main(int argc, char** argv) {
  try {
    megatron::MpiSession session(argc, argv);
    the_session = &session;
    if (session.rank() != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) session.abort(1);
    const int failed = megatron::test::run_tests(argc, argv);
    // Ranks must agree on the exit code, and a rank that failed alone must not leave the others waiting.
    return session.world().any_rank(failed != 0) ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
