// JSON of files that anyone may have written.
#include "base/text/strict_json.h"

#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("strict JSON: what is JSON is parsed") {
  CHECK(parse_strict_json(R"({"a": [1, {"b": null}]})", 3).at("a").size() == 2);
  CHECK(parse_strict_json("[]", 1).empty());
}

TEST_CASE("strict JSON: anything else is refused, also after what looks complete") {
  const auto refused = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    require_error(ErrorKind::checkpoint, {part}, [&] { parse_strict_json(text, 3); });
  };
  refused("[[[[]]]]", "nested too deeply");
  refused(R"({"a": 1, "a": 2})", "\"a\" is there twice");
  refused("[1", "not JSON");
  refused("[] []", "not JSON");
  refused("[\"\x89\"]", "not JSON");
  refused(std::string("[]\0", 3), "byte 2 is zero");
  refused(std::string("[]\0\x89", 4), "byte 2 is zero");
}
