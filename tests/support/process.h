// Programs started by tests: captured output, exit code, a time limit that kills the whole tree of processes, signals
// to the process or to descendants found by name. Linux only (/proc). Output goes to files, so nothing ever blocks on
// it.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/temporary_folder.h"

using Command = std::vector<std::string>;

struct Finished {
  int code = -1;  ///< exit code; 128 + signal after a signal, as shells say it
  bool timed_out = false;
  double seconds = 0;  ///< from the start
  std::string out, err;
};

/// Limits are given in seconds of an idle machine. They end what hangs; tests never measure by them, as a busy machine
/// may take many times as long.
inline constexpr double kBusy = 10;

inline void pause_milliseconds(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// All living descendants of a process, parents first; with `name`, only those of that program (15 characters at most).
inline std::vector<pid_t> descendants(pid_t root, const std::string& name = "") {
  struct Entry {
    pid_t pid, parent;
    std::string name;
  };
  std::vector<Entry> all;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    if (!isdigit(at->path().filename().string()[0])) continue;
    std::string text;  // "pid (name) state parent ..."; empty if the process has just ended
    std::getline(std::ifstream(at->path() / "stat"), text);
    const std::size_t open = text.find('('), close = text.rfind(')');
    if (close == std::string::npos) continue;
    std::istringstream rest(text.substr(close + 1));
    char state = 0;
    Entry entry{std::stoi(text), 0, text.substr(open + 1, close - open - 1)};
    rest >> state >> entry.parent;
    if (state != 'Z') all.push_back(entry);
  }
  std::vector<pid_t> tree = {root}, found;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    for (const Entry& entry : all) {
      if (entry.parent != tree[i]) continue;
      tree.push_back(entry.pid);
      if (name.empty() || entry.name == name) found.push_back(entry.pid);
    }
  }
  return found;
}

/// Seconds that a process has computed so far, 0 when it has ended.
inline double seconds_of_core(pid_t process) {
  const std::string stat = contents_of("/proc/" + std::to_string(process) + "/stat");
  std::istringstream words(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string word;
  for (int field = 3; field < 14; ++field) words >> word;
  double user = 0, system = 0;
  words >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

/// The rank that Open MPI gave a process; 0 if none did.
inline int open_mpi_rank(pid_t process) {
  const std::string name = "OMPI_COMM_WORLD_RANK=", all = contents_of("/proc/" + std::to_string(process) + "/environ");
  const std::size_t at = all.find(name);
  return at == std::string::npos ? 0 : std::atoi(all.c_str() + at + name.size());
}

class Process {
 public:
  /// Starts command[0] with the rest as arguments, in `directory`, with default signal handling and no input. Gives
  /// each program a separate session folder for Open MPI: 4.1.6 fails where two jobs create the shared one at once.
  explicit Process(Command command, const std::string& directory = ".") {
    command.insert(command.begin(), {"env", "OMPI_MCA_orte_tmpdir_base=" + output_.path()});
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string out = output_.file("out"), err = output_.file("err");
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ != 0) return;
    ::setsid();
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) std::signal(signal, SIG_DFL);
    redirect("/dev/null", 0, O_RDONLY);
    redirect(out.c_str(), 1, O_WRONLY | O_CREAT | O_APPEND);
    redirect(err.c_str(), 2, O_WRONLY | O_CREAT | O_APPEND);
    if (::chdir(directory.c_str()) == 0) ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ~Process() {
    if (!done_) kill_tree();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  /// Descendants of this program; ranks of an MPI job in their order, which their pids do not have once these wrap.
  std::vector<pid_t> children(const std::string& name) const {
    std::vector<std::pair<int, pid_t>> by_rank;
    for (const pid_t process : descendants(pid_, name)) by_rank.emplace_back(open_mpi_rank(process), process);
    std::stable_sort(by_rank.begin(), by_rank.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<pid_t> found;
    for (const auto& [rank, process] : by_rank) found.push_back(process);
    return found;
  }
  std::string out() const { return contents_of(output_.file("out")); }
  std::string err() const { return contents_of(output_.file("err")); }

  /// Waits until the process, or its first child of this name, has computed for a while. False when it ends before.
  bool wait_until_busy(const std::string& name = "", double seconds = 0.5) {
    for (; running(); pause_milliseconds(10)) {
      const std::vector<pid_t> busy = name.empty() ? std::vector<pid_t>{pid_} : children(name);
      if (!busy.empty() && seconds_of_core(busy.front()) >= seconds) return true;
    }
    return false;
  }

  bool running() {
    if (!done_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) {
      done_ = true;
      seconds_ = since_start();
    }
    return !done_;
  }

  /// Waits for the end; after `limit` seconds of an idle machine it kills the process and all its descendants.
  Finished wait(double limit = 60) {
    const double deadline = since_start() + kBusy * limit;
    bool timed_out = false;
    while (running()) {
      pause_milliseconds(5);
      if (since_start() < deadline) continue;
      timed_out = true;
      kill_tree();
    }
    const int code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
    return {code, timed_out, seconds_, out(), err()};
  }

 private:
  static void redirect(const char* path, int descriptor, int flags) {
    const int file = ::open(path, flags, 0600);
    if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(126);
  }
  double since_start() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  void kill_tree() {
    const std::vector<pid_t> tree = descendants(pid_);  // before the parents are gone and the tree falls apart
    ::kill(pid_, SIGKILL);
    for (const pid_t process : tree) ::kill(process, SIGKILL);
    ::waitpid(pid_, &status_, 0);
    done_ = true;
    seconds_ = since_start();
  }

  TemporaryFolder output_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool done_ = false;
  double seconds_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

inline Finished run_command(const Command& command, double limit = 60, const std::string& directory = ".") {
  return Process(command, directory).wait(limit);
}

/// Runs commands side by side, at most `together` at a time; results in the commands' order.
inline std::vector<Finished> run_commands(const std::vector<Command>& commands, std::size_t together,
                                          double limit = 60) {
  std::vector<Finished> results(commands.size());
  std::size_t next = 0;
  std::vector<std::thread> workers;
  std::vector<std::vector<std::size_t>> shares(std::min(together, commands.size()));
  for (; next < commands.size(); ++next) shares[next % shares.size()].push_back(next);
  for (const auto& share : shares) {
    workers.emplace_back([&, share] {
      for (const std::size_t i : share) results[i] = run_command(commands[i], limit);
    });
  }
  for (std::thread& worker : workers) worker.join();
  return results;
}
