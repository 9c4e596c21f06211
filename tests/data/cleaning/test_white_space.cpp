// White space: tidied, and as Python's regular expression of Megatron's tools has it.
#include "data/cleaning/white_space.h"

#include "support/catch.h"

using namespace megatron;

TEST_CASE("white space: runs become one, blank lines at most one") {
  std::string buffer;
  CHECK(tidied_white_space("  a \t b\u00A0\u2003c  \n", buffer) == "a b c");
  CHECK(tidied_white_space("a\n \n\n\t\nb\n c", buffer) == "a\n\nb\nc");
  CHECK(tidied_white_space("\u3000a\r\nb", buffer) == "a\nb");
  CHECK(tidied_white_space(" \n\t ", buffer).empty());
  CHECK(tidied_white_space("\xFF \xE3\x80", buffer) == "\xFF \xE3\x80");
  const std::string tidy = "a b\n\nc";
  CHECK(static_cast<const void*>(tidied_white_space(tidy, buffer).data()) == static_cast<const void*>(tidy.data()));
}

TEST_CASE("white space: Megatron's general cleaning") {
  CHECK(megatron_white_space("a  b   c d") == "a b c d");
  CHECK(megatron_white_space("word\nnext\n\n more") == "word next more");
  CHECK(megatron_white_space("end.\nnext") == "end.\nnext");
  CHECK(megatron_white_space("word\n  next") == "word  next");
  CHECK(megatron_white_space("word\n   next") == "word  next");
  CHECK(megatron_white_space("\u00E9\n\n") == "\u00E9 ");
  CHECK(megatron_white_space("") == "");
}
