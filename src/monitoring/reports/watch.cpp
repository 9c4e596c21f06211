#include "monitoring/reports/watch.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>

#include "base/core/error.h"
#include "base/system/bounded_lines.h"
#include "base/system/terminal_window.h"
#include "monitoring/metrics/metrics.h"

namespace megatron {

namespace {

constexpr int kInterval = 500;  // milliseconds between two looks at the files
constexpr int kFactsEvery = 4;  // looks between two at all but the metrics
constexpr double kQuietSeconds = 60, kQuietSteps = 20;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Draws lines where it drew the last ones.
class Screen {
 public:
  explicit Screen(const Terminal& terminal) : terminal_(terminal) {}

  /// False when nothing can be written any more.
  bool draw(const std::vector<std::string>& lines, std::size_t coloured_first, std::size_t coloured_last, int columns) {
    std::string text;
    // Lines of a window that was wider are wrapped now: begin with an empty one.
    if (columns != columns_ && columns_ > 0)
      text += "\x1b[2J\x1b[H";
    else if (drawn_ > 0)
      text += fmt::format("\x1b[{}A", drawn_);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const bool coloured = terminal_.colour && i >= coloured_first && i < coloured_last;
      text += fmt::format("\r{}{}{}\x1b[K\n", coloured ? "\x1b[32m" : "", lines[i], coloured ? "\x1b[0m" : "");
    }
    text += "\x1b[J";
    drawn_ = lines.size();
    columns_ = columns;
    return print(text);
  }

  static bool print(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
  }

 private:
  Terminal terminal_;
  std::size_t drawn_ = 0;
  int columns_ = 0;
};

/// Whether a run that is not locked, as far as can be seen, has come to its end.
bool has_ended(const RunRecord& run, bool was_running, double written) {
  if (run.running) return false;
  if (was_running) return true;
  if (!run.programs.empty() && run.programs.back().end) return true;
  // Killed, of an older version, or on a file system that does not show locks: there it is one that writes nothing.
  return now() - written > std::max(kQuietSeconds, kQuietSteps * run.curves.mean_step_seconds.value());
}

void read_facts(RunRecord& run, const std::string& directory) {
  RunCurves curves = std::move(run.curves);
  run = read_run_facts(directory);
  run.curves = std::move(curves);
  run.running = run_is_locked(directory);
}

bool show(Screen& screen, const RunRecord& run, const Terminal& terminal) {
  const int columns = columns_now(terminal);
  const std::vector<std::string> lines = watch_lines(
      run, now(), {.columns = columns, .rows = terminal_rows(), .curve = true, .braille = terminal_has_unicode()});
  return screen.draw(lines, 0, 1, columns);
}

}  // namespace

bool MetricsFollower::read_on(RunCurves& curves, const std::function<bool()>& stop) {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) return false;
  written_ = static_cast<double>(status.st_mtim.tv_sec);
  const bool same =
      status.st_dev == device_ && status.st_ino == file_ && static_cast<std::uint64_t>(status.st_size) >= position_;
  if (same && static_cast<std::uint64_t>(status.st_size) == position_) return false;
  if (!same) {
    curves = {};
    position_ = 0;
    device_ = status.st_dev;
    file_ = status.st_ino;
  }
  BoundedLines lines(path_, position_);
  std::string line;
  nlohmann::json object;
  for (bool too_long = false; !(stop && stop()) && lines.next(line, too_long) && lines.ended();) {
    position_ = lines.position();
    if (!too_long && parse_metrics_line(line, object)) {
      curves.add(object);
    } else {
      ++curves.unreadable;
    }
  }
  return true;
}

int watch_run(const std::string& directory, const StopSignals& signals) {
  require_run(directory);
  RunRecord run;
  MetricsFollower follower(directory + "/metrics.jsonl");
  const auto stop = [&] { return signals.received() != 0; };
  follower.read_on(run.curves, stop);
  read_facts(run, directory);
  const Terminal terminal = standard_terminal();
  if (!terminal.live() && !stop()) {
    std::string text;
    for (const std::string& line : watch_lines(run, now(), {.curve = false})) text += line + '\n';
    verify(Screen::print(text), ErrorKind::filesystem, "standard output cannot be written");
    return 0;
  }
  Screen screen(terminal);
  bool was_running = false;
  for (int look = 1; signals.received() == 0; ++look) {
    if (!show(screen, run, terminal)) return 0;  // the terminal is gone
    if (has_ended(run, was_running, follower.written())) return 0;
    was_running = run.running;
    ::poll(nullptr, 0, kInterval);
    follower.read_on(run.curves, stop);
    if (look % kFactsEvery == 0) read_facts(run, directory);
  }
  return signals.received() == SIGINT ? 0 : 128 + signals.received();
}

}  // namespace megatron
