// The bytes that a terminal sends for a key: characters, control characters, escape sequences.
#pragma once

#include <cstddef>
#include <string_view>

namespace megatron {

enum class Key {
  incomplete,  ///< more bytes are needed
  unknown,
  text,
  enter,
  left,
  right,
  word_left,
  word_right,
  home,
  end,
  up,
  down,
  backspace,
  erase,  ///< the key Delete
  erase_word,
  erase_to_begin,
  erase_to_end,
  clear_screen,
  ctrl_c,
  ctrl_d,
  ctrl_z,
  ctrl_backslash,
};

struct Stroke {
  Key key = Key::incomplete;
  std::size_t bytes = 0;  ///< the key's; for Key::text, those of all characters up to the next other key
};

/// The key that `bytes` begins with.
Stroke first_stroke(std::string_view bytes);

}  // namespace megatron
