// Functions that make the texts of messages.
#include "base/text/text.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("text: control characters become visible, the rest is unchanged") {
  CHECK(printable("plain\ttext\n") == "plain\ttext\n");
  CHECK(printable("\x1b[31mred\r\x7f") == "\\x1b[31mred\\x0d\\x7f");
  CHECK(printable("Überprüfung ✓") == "Überprüfung ✓");
  CHECK(printable("a\u202etxt\u2066.\u061c\u2028") == "a\\u202etxt\\u2066.\\u061c\\u2028");
  CHECK(printable("\xc2\x9b[31m \xe2\x80\x93 \xe2\x80 \xc2") == "\\u009b[31m \xe2\x80\x93 \xe2\x80 \xc2");
}

TEST_CASE("text: counts agree with their noun") {
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(8, "rank") == "8 ranks");
  CHECK(counted(2, "micro-batch") == "2 micro-batches");
}
