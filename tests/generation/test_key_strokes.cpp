// Tests of the bytes that terminals send for keys, whole and in pieces.
#include "generation/key_strokes.h"
#include "support/catch.h"

#include <string>

using namespace megatron;

TEST_CASE("key strokes: the keys of usual terminals") {
  struct Case {
    std::string bytes;
    Key key;
  };
  const std::vector<Case> cases = {
      {"\r", Key::enter},
      {"\n", Key::enter},
      {"\x7f", Key::backspace},
      {"\b", Key::backspace},
      {"\x01", Key::home},
      {"\x02", Key::left},
      {"\x03", Key::ctrl_c},
      {"\x04", Key::ctrl_d},
      {"\x05", Key::end},
      {"\x06", Key::right},
      {"\x0b", Key::erase_to_end},
      {"\x0c", Key::clear_screen},
      {"\x0e", Key::down},
      {"\x10", Key::up},
      {"\x15", Key::erase_to_begin},
      {"\x17", Key::erase_word},
      {"\x1a", Key::ctrl_z},
      {"\x1c", Key::ctrl_backslash},
      {"\x1b[A", Key::up},
      {"\x1bOB", Key::down},
      {"\x1b[C", Key::right},
      {"\x1bOD", Key::left},
      {"\x1b[1;5C", Key::word_right},
      {"\x1b[1;5D", Key::word_left},
      {"\x1b[H", Key::home},
      {"\x1bOF", Key::end},
      {"\x1b[1~", Key::home},
      {"\x1b[7~", Key::home},
      {"\x1b[4~", Key::end},
      {"\x1b[8~", Key::end},
      {"\x1b[3~", Key::erase},
      {"\x1b[5~", Key::unknown},
      {"\x1b[200~", Key::unknown},
      {"\x1bx", Key::unknown},
      {std::string(1, '\0'), Key::ctrl_d},  // typed while the terminal still took whole lines
  };
  for (const Case& one : cases) {
    CAPTURE(one.bytes.substr(one.bytes[0] == '\x1b' ? 1 : 0), static_cast<int>(one.bytes[0]));
    const Stroke stroke = first_stroke(one.bytes + "\x1b[A");
    CHECK(stroke.key == one.key);
    CHECK(stroke.bytes == one.bytes.size());
    for (std::size_t part = 0; part < one.bytes.size(); ++part) {
      CHECK(first_stroke(one.bytes.substr(0, part)).key == Key::incomplete);
      CHECK(first_stroke(one.bytes.substr(0, part)).bytes == 0);
    }
  }
}

TEST_CASE("key strokes: text is all up to the next key") {
  CHECK(first_stroke("a\tb \xc3\xa9\xff\r").bytes == 7);
  CHECK(first_stroke("a\tb \xc3\xa9\xff\r").key == Key::text);
  CHECK(first_stroke("a\x7f").bytes == 1);
}

TEST_CASE("key strokes: a lone escape takes no other key with it") {
  CHECK(first_stroke("\x1b\r").bytes == 1);
  CHECK(first_stroke("\x1b\x1b[A").bytes == 1);
  CHECK(first_stroke("\x1b[1\r").bytes == 3);
  CHECK(first_stroke("\x1b[1\r").key == Key::unknown);
}
