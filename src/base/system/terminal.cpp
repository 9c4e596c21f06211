#include "base/system/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/system/launcher.h"
#include "base/system/terminal_window.h"

namespace megatron {

namespace {

constexpr int kUsualColumns = 80, kUsualRows = 24, kMostColumns = 1000;

/// 0 where it is not known.
struct winsize window() {
  struct winsize size {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size = {};
  return size;
}

int columns() {
  if (rank_by_launcher()) {
    const char* handed_on = std::getenv("MEGATRON_TERMINAL");
    const int given = handed_on == nullptr ? 0 : std::atoi(handed_on);
    return given > 0 && given <= kMostColumns ? given : 0;
  }
  if (::isatty(STDOUT_FILENO) == 0 || ::isatty(STDERR_FILENO) == 0) return 0;
  const int known = window().ws_col;
  return known > 0 ? known : kUsualColumns;
}

}  // namespace

Terminal standard_terminal() {
  const char* const kind = std::getenv("TERM");
  if (kind == nullptr || *kind == '\0' || std::strcmp(kind, "dumb") == 0) return {};
  const char* const plain = std::getenv("NO_COLOR");
  return {.columns = columns(), .colour = plain == nullptr || *plain == '\0'};
}

int columns_now(const Terminal& terminal) {
  if (!terminal.live() || rank_by_launcher()) return terminal.columns;
  const int known = window().ws_col;
  return known > 0 ? known : terminal.columns;
}

int terminal_rows() {
  const int known = window().ws_row;
  return known > 0 ? known : kUsualRows;
}

bool terminal_has_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {  // the first that is set counts
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string locale = value;
    for (const char* encoding : {"UTF-8", "utf-8", "UTF8", "utf8"}) {
      if (locale.find(encoding) != locale.npos) return true;
    }
    return false;
  }
  return false;
}

}  // namespace megatron
