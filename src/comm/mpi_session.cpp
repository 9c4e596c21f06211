#include "comm/mpi_session.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>

#include "comm/activity_board.h"
#include "comm/mpi_communicator.h"

namespace megatron {

MpiSession::MpiSession(int& argc, char**& argv) {
  int provided = MPI_THREAD_SINGLE;
  // Other threads run as well (reading, saving) but only one at a time communicates.
  MPI_CHECK(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided));
  MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  verify(provided >= MPI_THREAD_SERIALIZED, ErrorKind::communication,
         "this MPI ({}) does not support threads (MPI_THREAD_SERIALIZED); use one built with thread support",
         library_version());

  std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
  int length = 0;
  MPI_CHECK(MPI_Get_processor_name(host.data(), &length));
  host_.assign(host.data(), static_cast<std::size_t>(length));

  MPI_Comm local = MPI_COMM_NULL;
  MPI_CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local));
  MPI_CHECK(MPI_Comm_rank(local, &local_rank_));
  MPI_CHECK(MPI_Comm_size(local, &local_size_));
  board_ = std::make_unique<ActivityBoard>(local);
  MPI_CHECK(MPI_Comm_free(&local));

  world_ = make_mpi_world();
  world_->set_activity(&board_->own());
}

MpiSession::~MpiSession() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  if (std::uncaught_exceptions() > 0 && size() > 1) {
    std::fprintf(stderr, "%s leaves MPI with an exception: the job is aborted\n", where().c_str());
    abort(static_cast<int>(ErrorKind::internal));
  }
  world_.reset();
  board_.reset();
  MPI_Finalize();
}

Activity& MpiSession::activity() {
  return board_->own();
}

std::vector<Activity*> MpiSession::neighbours() {
  return board_->all();
}

std::string MpiSession::where() const {
  return fmt::format("rank {} of {} on {}", rank(), size(), host_);
}

void MpiSession::abort(int exit_code) {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);  // MPI_Abort may return in theory
}

std::string MpiSession::library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown MPI";
  const std::string version(text.data(), static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace megatron
