#include "programs/program.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "config/suggestions.h"

namespace megatron {

namespace po = boost::program_options;

std::string program_version() {
  return MEGATRON_VERSION;
}

std::string version_report(const std::string& program) {
  return fmt::format("{} {}\nbuilt with GCC-compatible {} for {}\n{}\nbackends: cpu\n", program, program_version(),
                     __VERSION__, MEGATRON_ARCH, MpiSession::library_version());
}

po::variables_map parse_command_line(int argc, char** argv, const po::options_description& options,
                                     const po::positional_options_description& positional) {
  po::variables_map values;
  try {
    po::store(po::command_line_parser(argc, argv)
                  .options(options)
                  .positional(positional)
                  .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing)
                  .run(),
              values);
    po::notify(values);
  } catch (const po::unknown_option& error) {
    std::vector<std::string> names;
    for (const auto& option : options.options()) names.push_back("--" + option->long_name());
    const std::string nearest = suggest_choice(error.get_option_name(), names);
    fail(ErrorKind::configuration, "unknown option {}{}; --help lists all", error.get_option_name(),
         nearest.empty() ? "" : ", did you mean " + nearest + "?");
  } catch (const po::error& error) {
    fail(ErrorKind::configuration, "{}; --help lists all options", error.what());
  }
  return values;
}

namespace {

// Most errors are found by all ranks alike: rank 0 prints at once, and the others give it the time to end the job.
void print_error(int rank, const std::string& where, const char* what) {
  if (rank != 0) std::this_thread::sleep_for(std::chrono::seconds(3));  // mpirun's SIGTERM comes after 1 s
  std::fflush(stdout);
  // Errors of the input file come as "file:line:column: error: ...", one a line.
  const char* prefix = std::string_view(what).find(": error: ") == std::string_view::npos ? "error: " : "";
  const std::string line = fmt::format("{}{}{}{}\n", prefix, where, where.empty() ? "" : ": ", printable(what));
  std::fwrite(line.data(), 1, line.size(), stderr);  // not fmt::print, which throws if nobody can read it
  std::fflush(stderr);
}

}  // namespace

int launcher_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

int run_alone(const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    const int rank = launcher_rank();
    print_error(rank, rank == 0 ? "" : fmt::format("rank {}", rank), error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    print_error(launcher_rank(), "", error.what());
    return static_cast<int>(ErrorKind::internal);
  }
}

int run_with_mpi(int& argc, char**& argv, const std::function<int(MpiSession&)>& body) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error like a full disk, not the end of the process
  return run_alone([&] {
    MpiSession session(argc, argv);
    const auto leave = [&](const char* what, int exit_code) -> int {
      print_error(session.rank(), session.size() > 1 ? session.where() : "", what);
      if (session.size() == 1) return exit_code;
      session.abort(exit_code);
    };
    try {
      return body(session);
    } catch (const Error& error) {
      return leave(error.what(), error.exit_code());
    } catch (const std::bad_alloc&) {
      return leave("out of memory; --dry-run shows what a rank needs", static_cast<int>(ErrorKind::internal));
    } catch (const std::exception& error) {
      return leave(error.what(), static_cast<int>(ErrorKind::internal));
    }
  });
}

}  // namespace megatron
