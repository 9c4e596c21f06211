// Log: what the run says to people, on standard output and in the run directory's run.log.
//
// An instance, not a global: the program makes one per rank and passes it by reference. Only the enabled rank's prints;
// the others discard everything, so that callers need not check. Writing never fails the run: a full disk, a closed
// pipe or a vanished file costs lines, nothing else. Control characters (an escape sequence in a file's name, say) are
// printed as \xNN. Errors that end the program are printed by main, not by this class. Any thread may use it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/system/terminal.h"

namespace megatron {

class Log {
 public:
  /// `enabled`: whether this rank prints at all (one rank of a job does).
  /// `timeout`: seconds that lines wait for a standard output that takes none (a stopped terminal, a pager) before
  /// they are lost to it, and the run continues; the file has them all.
  explicit Log(bool enabled, double timeout = 60)
      : enabled_(enabled), timeout_(timeout), terminal_(enabled ? standard_terminal() : Terminal()) {}
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  bool enabled() const { return enabled_; }

  /// From now on also appends to the file `path`, every line with date and time. If the file cannot be opened, says so
  /// once and continues without. Silent ranks open nothing.
  void append_to(const std::string& path);

  /// One or more whole lines to standard output and the file; the last line's end is added.
  void info(std::string_view text);
  /// The same with "warning: " in front, to standard error and the file.
  void warning(std::string_view text);

  const Terminal& terminal() const { return terminal_; }
  /// On a terminal: one line below all others, drawn again until it is replaced; empty: none. At most as long as the
  /// terminal is wide; it may have escape sequences. Elsewhere nothing: it is not for files.
  void show_status(std::string_view line);
  /// How often lines have been printed.
  std::uint64_t lines() const;

  template <class First, class... Rest>
  void info(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest) {
    if (enabled_) info(std::string_view(fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)));
  }
  template <class First, class... Rest>
  void warning(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest) {
    if (enabled_) {
      warning(std::string_view(fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)));
    }
  }

 private:
  void write(int descriptor, std::string_view text);
  void write_to_stream(int descriptor, std::string_view text);
  void write_to_file(std::string_view text);

  bool enabled_;
  double timeout_;
  Terminal terminal_;
  mutable std::mutex mutex_;  // guards all below
  std::string status_;
  std::uint64_t lines_ = 0;
  bool stuck_ = false;  // the stream took nothing the last time
  int file_ = -1;
  std::string path_;
};

/// Takes those of the descriptors 0, 1, 2 that the program was started without, so that no file, of a checkpoint say,
/// is opened in their place and written over by messages. Using them fails as before. To be called before any open().
void keep_standard_streams_open();

}  // namespace megatron
