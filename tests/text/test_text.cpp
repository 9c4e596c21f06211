// What messages are made of.
#include "text/text.h"

#include <catch2/catch.hpp>

using namespace megatron;

TEST_CASE("text: control characters become visible, the rest is unchanged") {
  CHECK(printable("plain\ttext\n") == "plain\ttext\n");
  CHECK(printable("\x1b[31mred\r\x7f") == "\\x1b[31mred\\x0d\\x7f");
  CHECK(printable("Überprüfung ✓") == "Überprüfung ✓");
}

TEST_CASE("text: counts agree with their noun") {
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(8, "rank") == "8 ranks");
  CHECK(counted(2, "micro-batch") == "2 micro-batches");
}
