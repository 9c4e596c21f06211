// A job in which one rank fails while the others wait for it, as a program's main would handle it: the launcher must
// return the error's exit code within seconds.
//   failing_rank throw      rank 1 throws Error(checkpoint)
//   failing_rank mismatch   rank 1 gives an all-reduce of another size
//   failing_rank exchange   rank 1 gives an all-to-all of another size
//   failing_rank escape     rank 1's exception leaves the session uncaught by it
#include <cstdio>
#include <string>
#include <vector>

#include "distributed/comm/mpi_session.h"

namespace {

void body(megatron::MpiSession& session, const std::string& how) {
  using namespace megatron;
  const auto group = session.world().split(0, 0, "data");
  if (how == "exchange") {
    const std::int64_t count = session.rank() == 1 ? 12 : 9;
    std::vector<float> send(12), receive(12);
    group->all_to_all(Tensor(send.data(), {count}, DType::f32), Tensor(receive.data(), {count}, DType::f32), kPassedOn);
  }
  std::vector<float> values(session.rank() == 1 && how == "mismatch" ? 8 : 7);
  const Tensor tensor(values.data(), {static_cast<std::int64_t>(values.size())}, DType::f32);
  Pending sum = group->start_all_reduce(tensor, kPassedOn);  // in flight when the exception comes
  if (session.rank() == 1 && how != "mismatch") fail(ErrorKind::checkpoint, "manifest is damaged");
  sum.wait();
  session.world().barrier();
  session.world().barrier();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    megatron::MpiSession session(argc, argv);
    const std::string how = argc > 1 ? argv[1] : "";
    if (how == "escape") {
      body(session, how);
      return 0;
    }
    try {
      body(session, how);
    } catch (const megatron::Error& error) {
      std::fprintf(stderr, "%s: %s error: %s\n", session.where().c_str(), name_of(error.kind()), error.what());
      session.abort(error.exit_code());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
