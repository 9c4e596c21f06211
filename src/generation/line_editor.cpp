#include "generation/line_editor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

namespace megatron {

namespace {

constexpr std::size_t kMostHistory = 1000;

int columns_of(int terminal) {
  struct winsize size {};
  return ::ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

/// Whole lines, and an end, are to be had from the terminal as it is; the beginning of a line comes with the keys.
void LineEditor::take_typed_ahead() {
  struct pollfd waited {
    .fd = terminal_, .events = POLLIN, .revents = 0
  };
  while (!ended_ && ::poll(&waited, 1, 0) > 0) {
    std::array<char, 4096> some{};
    const ssize_t count = ::read(terminal_, some.data(), some.size());
    if (count < 0) return;
    ended_ = count == 0;
    pending_.append(some.data(), static_cast<std::size_t>(count));
  }
}

void LineEditor::draw() const {
  const int room = columns_of(terminal_) - static_cast<int>(sign_.size()) - 1;
  const EditedLine::View view = edited_.view(std::max(room, 1));
  const int column = static_cast<int>(sign_.size()) + view.cursor;
  print_(fmt::format("\r{}{}\x1b[K\r\x1b[{}C", sign_, view.text, column));
}

void LineEditor::insert(Place& place, std::string_view text) {
  place.too_long = place.too_long || edited_.text().size() + text.size() > longest_;
  if (!place.too_long) edited_.insert(text);
}

void LineEditor::recall(Place& place, std::size_t which) {
  if (which > history_.size()) return;
  if (place.recalled == history_.size()) place.draft = edited_.text();
  place.recalled = which;
  edited_.set(which == history_.size() ? place.draft : history_[which]);
}

void LineEditor::edit(Place& place, Key key) {
  switch (key) {
    case Key::left: return edited_.left();
    case Key::right: return edited_.right();
    case Key::word_left: return edited_.word_left();
    case Key::word_right: return edited_.word_right();
    case Key::home: return edited_.home();
    case Key::end: return edited_.end();
    case Key::backspace: return edited_.erase_left();
    case Key::ctrl_d:
    case Key::erase: return edited_.erase_right();
    case Key::erase_word: return edited_.erase_word();
    case Key::erase_to_begin: return edited_.erase_to_begin();
    case Key::erase_to_end: return edited_.erase_to_end();
    case Key::up:
      if (place.recalled > 0) recall(place, place.recalled - 1);
      return;
    case Key::down: return recall(place, place.recalled + 1);
    case Key::clear_screen: return print_("\x1b[H\x1b[2J");
    default: return;
  }
}

LineSource::Outcome LineEditor::entered(const Place& place, std::string& line) {
  edited_.end();
  draw();
  print_("\n");
  if (place.too_long) return Outcome::too_long;
  line = edited_.text();
  if (!line.empty() && (history_.empty() || history_.back() != line)) history_.push_back(line);
  if (history_.size() > kMostHistory) history_.erase(history_.begin());
  return Outcome::line;
}

LineSource::Outcome LineEditor::end() {
  print_("\n");
  return Outcome::end;
}

LineSource::Outcome LineEditor::next(std::string& line) {
  take_typed_ahead();
  RawTerminal terminal(terminal_);
  edited_.set("");
  Place place{.recalled = history_.size()};
  while (true) {
    const Stroke stroke = first_stroke(pending_);
    const std::string bytes = pending_.substr(0, stroke.bytes);
    pending_.erase(0, stroke.bytes);
    switch (stroke.key) {
      case Key::incomplete: {
        draw();
        if (ended_) return end();
        switch (terminal.read(pending_)) {
          case RawTerminal::Event::keys: break;
          case RawTerminal::Event::signal: return Outcome::interrupted;
          case RawTerminal::Event::end: return Outcome::end;
        }
        break;
      }
      case Key::text: insert(place, bytes); break;
      case Key::enter: return entered(place, line);
      case Key::ctrl_c:
        edited_.end();
        draw();
        print_("^C");
        return Outcome::interrupted;
      case Key::ctrl_z: terminal.raise(SIGTSTP); break;
      case Key::ctrl_backslash: terminal.raise(SIGQUIT); break;
      case Key::ctrl_d:
        if (edited_.text().empty()) return end();
        edit(place, stroke.key);
        break;
      default: edit(place, stroke.key);
    }
  }
}

}  // namespace megatron
