// What the mains share: the version text, options parsed with our errors, and the way out of a job with an error.
#pragma once

#include <boost/program_options.hpp>
#include <functional>
#include <string>

#include "comm/mpi_session.h"

namespace megatron {

/// "0.1.0", from the build.
std::string program_version();

/// What must be the same on all ranks: version, MPI library, and a hash of the program's file. One line.
std::string build_identity();

/// --version: program, compiler, libraries.
std::string version_report(const std::string& program);

/// Command line to values; a bad option is Error(configuration) that names it and the nearest known one.
boost::program_options::variables_map parse_command_line(
    int argc, char** argv, const boost::program_options::options_description& options,
    const boost::program_options::positional_options_description& positional);

/// This process' rank by the launcher's environment, before MPI is started; 0 without a launcher.
int launcher_rank();

/// Runs `body` without MPI; prints an Error and returns its exit code.
int run_alone(const std::function<int()>& body);

/// Runs `body` between MPI_Init and MPI_Finalize. An Error that a rank throws is printed once (by the ranks that have
/// it, the lowest first) and ends the whole job with its exit code within seconds. Ranks that were built differently
/// are refused. A rank that crashes leaves its stack in `directory`/backtrace_rank_N.txt; without directory: standard
/// error.
int run_with_mpi(int& argc, char**& argv, const std::function<int(MpiSession&)>& body,
                 const std::string& directory = "");

}  // namespace megatron
