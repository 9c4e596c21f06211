// A line while it is edited: whole characters, words, and the part of it that a terminal shows.
#include "generation/edited_line.h"
#include "support/catch.h"

using namespace megatron;

namespace {

EditedLine line_of(const std::string& text) {
  EditedLine line;
  line.set(text);
  return line;
}

}  // namespace

TEST_CASE("edited line: characters go in and out at the cursor") {
  EditedLine line = line_of("helo");
  line.left();
  line.insert("l");
  CHECK(line.text() == "hello");
  line.home();
  line.left();
  line.erase_left();
  line.erase_right();
  line.insert("J");
  CHECK(line.text() == "Jello");
  line.right();
  line.erase_to_end();
  CHECK(line.text() == "Je");
  line.right();
  line.erase_right();
  line.insert("t");
  CHECK(line.text() == "Jet");
  line.left();
  line.erase_to_begin();
  CHECK(line.text() == "t");
  line.end();
  line.erase_left();
  line.erase_left();
  CHECK(line.text().empty());
}

TEST_CASE("edited line: a character of several bytes is one") {
  EditedLine line = line_of("aé漢😀b");
  line.left();
  line.erase_left();
  CHECK(line.text() == "aé漢b");
  line.erase_left();
  CHECK(line.text() == "aéb");
  line.left();
  line.erase_right();
  CHECK(line.text() == "ab");
  line.home();
  line.right();
  line.insert("ß");
  line.insert("ü");
  CHECK(line.text() == "aßüb");
}

TEST_CASE("edited line: bytes that are no UTF-8 are characters of their own") {
  EditedLine line = line_of("a\xff\xa9z");
  line.left();
  line.erase_left();
  CHECK(line.text() == "a\xffz");
  line.left();
  line.erase_right();
  CHECK(line.text() == "az");
  CHECK(line_of("a\xff\xe6\xbc").view(80).text == "a\uFFFD\uFFFD\uFFFD");
}

TEST_CASE("edited line: words") {
  EditedLine line = line_of("one  two three ");
  line.erase_word();
  CHECK(line.text() == "one  two ");
  line.word_left();
  line.insert("and ");
  CHECK(line.text() == "one  and two ");
  line.word_left();
  line.erase_word();
  CHECK(line.text() == "and two ");
  line.word_right();
  line.insert("!");
  CHECK(line.text() == "and! two ");
  line.home();
  line.erase_word();
  line.word_left();
  CHECK(line.text() == "and! two ");
}

TEST_CASE("edited line: a terminal shows what is in front of the cursor") {
  const auto shows = [](const EditedLine& line, int columns, const std::string& text, int cursor) {
    const EditedLine::View view = line.view(columns);
    CHECK(view.text == text);
    CHECK(view.cursor == cursor);
  };
  EditedLine line = line_of("0123456789");
  shows(line, 10, "0123456789", 10);
  shows(line, 4, "6789", 4);
  line.left();
  line.left();
  shows(line, 4, "4567", 4);
  line.home();
  shows(line, 4, "0123", 0);
  line.right();
  shows(line, 4, "0123", 1);
  shows(line_of(""), 4, "", 0);
  // Characters of two columns, and of none.
  line = line_of("漢字漢");
  shows(line, 6, "漢字漢", 6);
  shows(line, 5, "字漢", 4);
  line.home();
  shows(line, 5, "漢字", 0);
  shows(line_of("e\u0301e"), 2, "e\u0301e", 2);
  // Characters that would move the cursor.
  shows(line_of("a\tb\u0085"), 80, "a b\uFFFD", 4);
}
