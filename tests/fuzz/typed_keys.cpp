// Input from a terminal or a pipe: keys make lines whose view fits the terminal, and lines are those between line ends.
// The first byte is the columns of the terminal, and the longest line of the pipe.
#include <fcntl.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "generation/edited_line.h"
#include "generation/key_strokes.h"
#include "generation/line_reader.h"
#include "text/text.h"

using namespace megatron;

namespace {

void press(EditedLine& line, Key key, std::string_view bytes) {
  switch (key) {
    case Key::text: return line.insert(bytes);
    case Key::enter: return line.set("");
    case Key::left: return line.left();
    case Key::right: return line.right();
    case Key::word_left: return line.word_left();
    case Key::word_right: return line.word_right();
    case Key::home: return line.home();
    case Key::end: return line.end();
    case Key::backspace: return line.erase_left();
    case Key::erase: return line.erase_right();
    case Key::erase_word: return line.erase_word();
    case Key::erase_to_begin: return line.erase_to_begin();
    case Key::erase_to_end: return line.erase_to_end();
    default: return;
  }
}

void edit(std::string_view keys, int columns) {
  EditedLine line;
  while (!keys.empty()) {
    const Stroke stroke = first_stroke(keys);
    if (stroke.key == Key::incomplete) return;
    fuzz::require(stroke.bytes > 0 && stroke.bytes <= keys.size(), "a key of no bytes");
    press(line, stroke.key, keys.substr(0, stroke.bytes));
    keys.remove_prefix(stroke.bytes);
    const EditedLine::View view = line.view(columns);
    fuzz::require(view.cursor >= 0 && view.cursor <= columns, "a cursor outside of the terminal");
    fuzz::require(printable(view.text) == view.text, "a line that steers the terminal");
  }
}

void read(std::string_view text, std::size_t longest) {
  const fuzz::ScratchFile file(text);
  const int descriptor = ::open(file.path().c_str(), O_RDONLY);
  LineReader reader(descriptor, longest);
  std::string line;
  for (LineReader::Outcome outcome; (outcome = reader.next(line)) != LineReader::Outcome::end;) {
    const std::string_view expected = text.substr(0, text.find('\n'));
    const bool too_long = expected.size() > longest;
    fuzz::require(outcome == (too_long ? LineReader::Outcome::too_long : LineReader::Outcome::line), "a long line");
    fuzz::require(too_long || line == expected, "another line");
    text.remove_prefix(std::min(expected.size() + 1, text.size()));
  }
  fuzz::require(text.empty(), "a line that was not read");
  ::close(descriptor);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  edit(text, data[0]);
  read(text, data[0]);
  return 0;
}
