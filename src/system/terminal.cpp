#include "system/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "system/launcher.h"

namespace megatron {

namespace {

constexpr int kUsualColumns = 80, kMostColumns = 1000;

int columns() {
  if (rank_by_launcher()) {
    const char* handed_on = std::getenv("MEGATRON_TERMINAL");
    const int given = handed_on == nullptr ? 0 : std::atoi(handed_on);
    return given > 0 && given <= kMostColumns ? given : 0;
  }
  if (::isatty(STDOUT_FILENO) == 0 || ::isatty(STDERR_FILENO) == 0) return 0;
  struct winsize size {};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

}  // namespace

bool terminal_redraws() {
  const char* const kind = std::getenv("TERM");
  return kind != nullptr && *kind != '\0' && std::strcmp(kind, "dumb") != 0;
}

Terminal standard_terminal() {
  if (!terminal_redraws()) return {};
  const char* const plain = std::getenv("NO_COLOR");
  return {.columns = columns(), .colour = plain == nullptr || *plain == '\0'};
}

}  // namespace megatron
