#include "generation/key_strokes.h"

namespace megatron {

namespace {

constexpr char kEscape = '\x1b';

constexpr char ctrl(char letter) {
  return static_cast<char>(letter & 0x1f);
}

bool is_text(char c) {
  return (static_cast<unsigned char>(c) >= ' ' && c != '\x7f') || c == '\t';
}

Key control_key(char c) {
  switch (c) {
    case '\r':
    case '\n': return Key::enter;
    case '\x7f':
    case ctrl('H'): return Key::backspace;
    case ctrl('A'): return Key::home;
    case ctrl('B'): return Key::left;
    case ctrl('C'): return Key::ctrl_c;
    case '\0':  // Linux makes this of a Ctrl-D that was typed before the terminal left its own line mode
    case ctrl('D'): return Key::ctrl_d;
    case ctrl('E'): return Key::end;
    case ctrl('F'): return Key::right;
    case ctrl('K'): return Key::erase_to_end;
    case ctrl('L'): return Key::clear_screen;
    case ctrl('N'): return Key::down;
    case ctrl('P'): return Key::up;
    case ctrl('U'): return Key::erase_to_begin;
    case ctrl('W'): return Key::erase_word;
    case ctrl('Z'): return Key::ctrl_z;
    case ctrl('\\'): return Key::ctrl_backslash;
    default: return Key::unknown;
  }
}

Key numbered_key(std::string_view number) {
  if (number == "1" || number == "7") return Key::home;
  if (number == "4" || number == "8") return Key::end;
  return number == "3" ? Key::erase : Key::unknown;
}

/// The key of ESC [ parameters last, or ESC O last.
Key sequence_key(std::string_view parameters, char last) {
  const bool with_ctrl = parameters == "1;5";
  switch (last) {
    case 'A': return Key::up;
    case 'B': return Key::down;
    case 'C': return with_ctrl ? Key::word_right : Key::right;
    case 'D': return with_ctrl ? Key::word_left : Key::left;
    case 'F': return Key::end;
    case 'H': return Key::home;
    case '~': return numbered_key(parameters);
    default: return Key::unknown;
  }
}

Stroke escape_sequence(std::string_view bytes) {
  if (bytes.size() < 2) return {};
  if (!is_text(bytes[1])) return {Key::unknown, 1};
  if (bytes[1] != '[' && bytes[1] != 'O') return {Key::unknown, 2};
  std::size_t at = 2;
  while (at < bytes.size() && bytes[at] >= ' ' && bytes[at] < '@') ++at;
  if (at == bytes.size()) return {};
  if (!is_text(bytes[at])) return {Key::unknown, at};
  return {sequence_key(bytes.substr(2, at - 2), bytes[at]), at + 1};
}

}  // namespace

Stroke first_stroke(std::string_view bytes) {
  if (bytes.empty()) return {};
  if (bytes[0] == kEscape) return escape_sequence(bytes);
  if (!is_text(bytes[0])) return {control_key(bytes[0]), 1};
  std::size_t count = 1;
  while (count < bytes.size() && is_text(bytes[count])) ++count;
  return {Key::text, count};
}

}  // namespace megatron
