#include "programs/program.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <locale>
#include <memory>
#include <system_error>
#include <thread>

#include "backend/ops/backends.h"
#include "backend/ops/device.h"
#include "base/core/error.h"
#include "base/system/crash_report.h"
#include "base/system/launcher.h"
#include "base/system/log.h"
#include "base/system/memory_usage.h"
#include "base/text/text.h"
#include "cuda/library.h"
#include "distributed/comm/agreement.h"
#include "programs/processor_check.h"

namespace megatron {

constinit const char* const built_for = MEGATRON_ARCH;
constinit const bool built_with[] = {MEGATRON_CPU_FEATURES(MEGATRON_CPU_FEATURE_IS_USED)};

std::string program_version() {
  return MEGATRON_VERSION;
}

std::string version_report(const std::string& program) {
  return fmt::format("{} {}\nbuilt with GCC-compatible {} for {}\n{}\nbackends: cpu{}; CUDA: {}\n", program,
                     program_version(), __VERSION__, MEGATRON_ARCH, MpiSession::library_version(),
                     cuda_build().cuda ? ", cuda" : "",
                     cuda_support().obstacle.empty() ? cuda_support().description : cuda_support().obstacle);
}

std::string build_identity() {
  // The file that is running, even if another one has its name by now, and the one that the GPU backend would be loaded
  // from: milliseconds.
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  std::vector<char> block(1 << 20);
  for (const std::string& file : {std::string("/proc/self/exe"), cuda_library_file()}) {
    std::ifstream program(file, std::ios::binary);
    while (program.read(block.data(), static_cast<std::streamsize>(block.size())), program.gcount() > 0) {
      XXH3_64bits_update(hash.get(), block.data(), static_cast<std::size_t>(program.gcount()));
    }
  }
  return fmt::format("version {} for {} with {}, program {:016x}", program_version(), MEGATRON_ARCH,
                     MpiSession::library_version(), XXH3_64bits_digest(hash.get()));
}

namespace {

// Most errors are found by all ranks alike: rank 0 prints at once, and the others give it the time to end the job, on
// other hosts too. An error of one rank's own waits less.
constexpr int kSecondsToAgreedEnd = 30, kSecondsToEnd = 3;  // mpirun's SIGTERM comes after 1 s, on its own host

/// Whether an error says by itself which rank found it, as agree() does: "rank 3 on node07: ".
bool names_rank(std::string_view what) {
  constexpr std::string_view kRank = "rank ", kOn = " on ";
  for (std::size_t at = what.find(kRank); at != std::string_view::npos; at = what.find(kRank, at + 1)) {
    std::string_view rest = what.substr(at + kRank.size());
    const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    rest.remove_prefix(digits);
    if (digits == 0 || !rest.starts_with(kOn)) continue;
    const std::string_view host = rest.substr(kOn.size(), rest.find(' ', kOn.size()) - kOn.size());
    if (host.size() > 1 && host.ends_with(':')) return true;
  }
  return false;
}

void print_error(int rank, const std::string& where, const char* what, int seconds_to_end = kSecondsToEnd) {
  if (rank != 0) std::this_thread::sleep_for(std::chrono::seconds(seconds_to_end));
  std::fflush(stdout);
  // Errors of the input file come as "file:line:column: error: ...", one per line.
  const char* prefix = std::string_view(what).find(": error: ") == std::string_view::npos ? "error: " : "";
  std::string line = fmt::format("{}{}{}{}\n", prefix, where, where.empty() ? "" : ": ", printable(what));
  // Several errors come one per line, and what a line's list has is indented.
  for (std::size_t end = line.find('\n'); end + 1 < line.size(); end = line.find('\n', end + 1)) {
    if (line[end + 1] != ' ' && line[end + 1] != '\n') line.insert(end + 1, prefix);
  }
  std::fwrite(line.data(), 1, line.size(), stderr);  // not fmt::print, which throws if no reader is left
  std::fflush(stderr);
}

// The text of a thread's error does not say what the system has refused.
std::string explained(const std::exception& error) {
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  if (system == nullptr || system->code() != std::errc::resource_unavailable_try_again) return error.what();
  return fmt::format(
      "cannot start a thread: {}; raise the limits on memory (ulimit -v) and on processes (ulimit -u), or use fewer "
      "threads",
      error.what());
}

// Half of a report must not pass for the whole. A run's own lines are not among it: they go past these buffers (Log).
void require_printed() {
  std::cout.flush();
  const bool printed = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  verify(printed, ErrorKind::filesystem, "standard output cannot be written; what was printed is not complete");
}

// Two builds may differ in any number that all ranks must have alike.
void require_same_build(MpiSession& session) {
  Communicator& world = session.world();
  if (world.size() == 1) return;
  const std::string mine = build_identity();
  const std::string root = world.broadcast_text(mine + " (rank 0 on " + session.host() + ")", 0);
  agree(world, [&] {
    verify(root.starts_with(mine + " ("), ErrorKind::configuration,
           "another build than on rank 0; start the same program on every node: here, on {}, {}; there {}",
           session.host(), mine, root);
  });
}

}  // namespace

int launcher_rank() {
  return rank_by_launcher().value_or(0);
}

int launcher_ranks() {
  for (const auto& [rank, size] :
       {std::pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), std::pair("SLURM_PROCID", "SLURM_NTASKS")}) {
    const char* value = std::getenv(size);
    if (std::getenv(rank) != nullptr && value != nullptr) return std::max(1, std::atoi(value));
  }
  return 1;
}

int run_alone(const std::function<int()>& body) {
  keep_standard_streams_open();                 // before anything is opened
  std::locale::global(std::locale::classic());  // decimal points, even if a library has adopted the user's locale
  try {
    const int code = body();
    require_printed();
    return code;
  } catch (const Error& error) {
    const int rank = launcher_rank();
    print_error(rank, rank == 0 ? "" : fmt::format("rank {}", rank), error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    const bool printing = std::ferror(stdout) != 0;  // where fmt::print could not
    print_error(launcher_rank(), printing ? "standard output" : "", explained(error).c_str());
    return static_cast<int>(printing ? ErrorKind::filesystem : ErrorKind::internal);
  }
}

int run_with_mpi(int& argc, char**& argv, const std::function<int(MpiSession&)>& body, const std::string& directory) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error like a full disk, not the end of the process
  return run_alone([&] {
    MpiSession session(argc, argv);
    const std::string file = directory.empty() ? "" : CrashReport::file_in(directory, session.rank());
    const CrashReport crash_report(session.where(), file, &session.activity());
    const auto leave = [&](const char* what, int exit_code, int seconds_to_end = kSecondsToEnd) -> int {
      const bool names_place = session.size() > 1 && !names_rank(what);
      print_error(session.rank(), names_place ? session.where() : "", what, seconds_to_end);
      if (session.size() == 1) return exit_code;
      session.abort(exit_code);
    };
    try {
      require_same_build(session);
      return body(session);
    } catch (const AgreedError& error) {
      return leave(error.what(), error.exit_code(), kSecondsToAgreedEnd);
    } catch (const Error& error) {
      return leave(error.what(), error.exit_code());
    } catch (const std::bad_alloc&) {
      return leave(kOutOfMemory, static_cast<int>(ErrorKind::internal));
    } catch (const std::exception& error) {
      return leave(explained(error).c_str(), static_cast<int>(ErrorKind::internal));
    }
  });
}

int run_data_tool(int& argc, char**& argv, const std::function<bool()>& answers,
                  const std::function<void(Communicator&)>& run) {
  bool done = false;
  const int code = run_alone([&] {
    done = answers();
    return 0;
  });
  if (code != 0 || done) return code;
  std::signal(SIGPIPE, SIG_IGN);
  return run_with_mpi(argc, argv, [&](MpiSession& session) {
    try {
      run(session.world());
      return 0;
    } catch (const Error& error) {
      if (session.rank() == 0) print_error(0, "", error.what());
      std::fflush(nullptr);
      session.world().barrier();
      return error.exit_code();
    }
  });
}

}  // namespace megatron
