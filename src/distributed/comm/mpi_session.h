// MpiSession: MPI from Init to Finalize, and the communicator over all ranks. One per process, made in main.
//
// Everything that communicates (grids, trainers) must die before it. Knows nothing of what the ranks do. Programs
// started without a launcher are a world of one rank. One thread at a time may communicate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "distributed/comm/communicator.h"

namespace megatron {

class ActivityBoard;

class MpiSession {
 public:
  /// MPI_Init; may remove the launcher's arguments from argv. Throws Error(communication).
  MpiSession(int& argc, char**& argv);
  /// MPI_Finalize, which waits for all ranks. While an exception unwinds, a job of several ranks is aborted instead
  /// (exit code 1): the others would wait for ever. Mains catch inside the session and call abort() themselves.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return world_->rank(); }
  int size() const { return world_->size(); }
  int local_rank() const { return local_rank_; }  ///< among the ranks on this host
  int local_size() const { return local_size_; }
  const std::string& host() const { return host_; }
  const std::vector<std::string>& hosts() const { return hosts_; }  ///< by rank
  const std::string& job() const { return job_; }                   ///< a name that other jobs do not have
  std::string where() const;  ///< "rank 3 of 8 on node07": put in front of an error's message

  Communicator& world() { return *world_; }

  /// Record of what this rank is doing, written by the communicators of the world and by the code that it is given to.
  Activity& activity();
  /// The same of all ranks on this host, itself included, by local rank; only itself where memory cannot be shared.
  std::vector<Activity*> neighbours();

  /// Ends all ranks of the job within seconds; the launcher returns `exit_code`. Output is flushed first. May be called
  /// from any thread, also while another one communicates. Ranks of this host that are still there a while later are
  /// killed, and then the launcher's process here, which may be waiting for a host that is cut off.
  [[noreturn]] void abort(int exit_code);

  /// MPI's name and version, one line, for --version. May be called without a session.
  static std::string library_version();

 private:
  void learn_hosts();

  std::unique_ptr<ActivityBoard> board_;  // outlives the world, which writes there
  std::unique_ptr<Communicator> world_;
  std::string host_, job_;
  std::vector<std::string> hosts_;
  int local_rank_ = 0, local_size_ = 1;
};

}  // namespace megatron
