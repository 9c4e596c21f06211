#include "distributed/comm/mpi_session.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <sstream>

#include "base/system/job_end.h"
#include "base/system/launcher.h"
#include "distributed/comm/activity_board.h"
#include "distributed/comm/mpi_communicator.h"

namespace megatron {

namespace {

constexpr double kSecondsToEnd = 15;  // from an abort to the end of what has not heard of it

}  // namespace

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
  learn_hosts();
}

void MpiSession::learn_hosts() {
  const std::string job =
      fmt::format("{}.{:x}", ::getpid(), std::chrono::system_clock::now().time_since_epoch().count());
  const std::vector<std::string> hosts = world_->gather_texts(host_, 0);
  std::istringstream words(world_->broadcast_text(fmt::format("{} {}", job, fmt::join(hosts, " ")), 0));
  words >> job_;
  for (std::string host; words >> host;) hosts_.push_back(host);
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
  std::vector<pid_t> processes = {::getpid()};
  for (const Activity* rank : board_->all()) {
    if (rank->process() > 0 && runs_this_program(rank->process())) processes.push_back(rank->process());
  }
  if (const pid_t launcher = launcher_process()) processes.push_back(launcher);
  kill_later(processes, kSecondsToEnd);
  leave_exit_code(exit_code);
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
