// Shared by the main functions: the version text, the command line, and the way out of a job with an error.
#pragma once

#include <functional>
#include <string>

#include "distributed/comm/mpi_session.h"
#include "programs/command_line.h"

namespace megatron {

/// "0.1.0", from the build.
std::string program_version();

/// The build, which must be the same on all ranks: version, MPI library, and a hash of the program's file. One line.
std::string build_identity();

/// --version: program, compiler, libraries.
std::string version_report(const std::string& program);

/// This process' rank and the number of ranks by the launcher's environment, before MPI is started; 0 and 1 without a
/// launcher.
int launcher_rank();
int launcher_ranks();

/// Runs `body` without MPI; prints an Error and returns its exit code.
int run_alone(const std::function<int()>& body);

/// Runs `body` between MPI_Init and MPI_Finalize. An Error that a rank throws is printed once (by the ranks that have
/// it, the lowest first) and ends the whole job with its exit code within seconds. Ranks that were built differently
/// are refused. A rank that crashes leaves its stack in `directory`/backtrace_rank_N.txt; without directory: standard
/// error.
int run_with_mpi(int& argc, char**& argv, const std::function<int(MpiSession&)>& body,
                 const std::string& directory = "");

/// The main function of a data tool. `answers` is asked first, without MPI, and returns whether it was all. `run` is
/// collective, and its Errors are those of all ranks, from the same arguments or from agree(): rank 0 prints one, and
/// all leave with its exit code. A closed pipe does not end the work.
int run_data_tool(int& argc, char**& argv, const std::function<bool()>& answers,
                  const std::function<void(Communicator&)>& run);

}  // namespace megatron
