// The text of data.split.
#include "config/schema/split.h"
#include "support/catch.h"

using namespace megatron;
using Shares = std::array<double, 3>;

TEST_CASE("split text: up to three numbers, by commas or slashes", "[split]") {
  CHECK(parse_split("969,30,1") == Shares{969, 30, 1});
  CHECK(parse_split("969, 30 ,1") == Shares{969, 30, 1});
  CHECK(parse_split("98/2") == Shares{98, 2, 0});
  CHECK(parse_split("1") == Shares{1, 0, 0});
  CHECK(parse_split("0.5,.25,2.5e-1") == Shares{0.5, 0.25, 0.25});
  CHECK(parse_split("0,1") == Shares{0, 1, 0});
}

TEST_CASE("split text: anything else is refused", "[split]") {
  for (const char* wrong :
       {"", " ", "a", "1,2,3,4", "1,,2", "1,", ",1", "-1,2", "0,0", "nan", "inf", "1;2", "1 2", "1e99", "0x1"}) {
    INFO(wrong);
    CHECK_FALSE(parse_split(wrong));
  }
}
