// The JSON lines reader against nlohmann's: the same lines are accepted, and the same text is found.
#include "data/preprocess/json_text.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/core/philox.h"
#include "base/text/utf8.h"
#include "support/catch.h"

using namespace megatron;
using Json = nlohmann::json;

namespace {

std::optional<std::string> ours(const std::string& line) {
  try {
    std::string buffer;
    return std::string(text_of_json(line, "text", buffer));
  } catch (const BadDocument&) {
    return std::nullopt;
  }
}

std::optional<std::string> theirs(const std::string& line) {
  try {
    const Json record = Json::parse(line);
    if (!record.is_object() || !record.contains("text") || !record["text"].is_string()) return std::nullopt;
    return record["text"].get<std::string>();
  } catch (const Json::out_of_range&) {
    return ours(line);  // a number beyond the range of double: not its syntax is at fault
  } catch (const Json::exception& error) {
    // Half a surrogate pair outside of the text is read here.
    return std::string(error.what()).find("surrogate") != std::string::npos ? ours(line) : std::nullopt;
  }
}

const std::vector<std::string> kLines = {
    R"({"text":"a"})",
    R"( { "id" : -0.5e+10 , "text" : "x\"\\\/\b\f\n\r\ty\u00e4\u20AC\ud83d\uDE00" , "meta" : { "a" : [ 1 , { } , [ ] ] } } )",
    R"({"text":"one","text":"two"})",
    R"({"text":"one","text":null})",
    R"({"te\u0078t":"escaped key","deep":[[[[[{"text":"no"}]]]]]})",
    R"({"a":true,"b":false,"c":null,"d":[],"text":"","e":[1,2.5,-3,0,1e5,"s"]})",
    R"([1,2,{"text":"x"}])",
    R"("text")",
    R"({})",
    R"({"text":[]})",
    R"({"text":"0123456789abcdef0123456789abcdef0123456789\n0123456789abcdef0123456789abcdef0123456789"})",
    "{\"text\":\"Gr\xC3\xBC\xC3\x9F"
    "e \xF0\x9F\x98\x80\",\"x\":\"\\u0000\"}",
};

}  // namespace

TEST_CASE("JSON lines: the same text as another reader finds", "[preprocess]") {
  for (const std::string& line : kLines) {
    INFO(line);
    CHECK(ours(line) == theirs(line));
  }
  CHECK(ours(kLines[2]) == "two");
  CHECK(ours(kLines[4]) == "escaped key");
  std::string deep(1'000'000, '[');
  CHECK_FALSE(ours("{\"a\":" + deep));
  CHECK(ours("{\"text\":\"x\",\"a\":" + deep + std::string(deep.size(), ']') + "}") == "x");
  CHECK(ours(R"({"text":"x","a":1e999})") == "x");  // a number that fits nowhere is still JSON
}

TEST_CASE("JSON lines: NaN and half surrogates are read outside of the text", "[preprocess]") {
  CHECK(ours(R"({"text": "one fine day", "score": NaN})") == "one fine day");
  CHECK(ours(R"({"a": [-Infinity, {"b": Infinity}], "text": "x", "id": 3})") == "x");
  CHECK(ours(R"({"a": "\ud83d", "\udc00\ud800x": {"\ud800\u0041": 1}, "text": "x"})") == "x");
  CHECK_FALSE(ours(R"({"text": NaN})"));
  CHECK_FALSE(ours(R"({"text": "\ud83d"})"));
  for (const char* word : {"nan", "Inf", "-NaN", "+Infinity", "NaNs", "Infinit", "None"}) {
    INFO(word);
    CHECK_FALSE(ours(R"({"text": "x", "a": )" + std::string(word) + "}"));
  }
}

TEST_CASE("JSON lines: damaged lines are refused as another reader refuses them", "[preprocess]") {
  std::uint64_t state = 0, accepted = 0, refused = 0;
  const auto below = [&](std::uint64_t limit) { return static_cast<std::size_t>(mix64(state++) % limit); };
  static const std::string kBytes = "\"\\{}[]:,0123456789.eE+-tfnu \n\x01/abcdef";
  for (int round = 0; round < 60000; ++round) {
    std::string line = kLines[below(kLines.size())];
    for (std::size_t change = 0; change <= below(3); ++change) {
      const std::size_t at = below(line.size());
      switch (below(4)) {
        case 0: line[at] = kBytes[below(kBytes.size())]; break;
        case 1: line.erase(at, 1 + below(4)); break;
        case 2: line.insert(at, 1, kBytes[below(kBytes.size())]); break;
        default: line.insert(at, line.substr(below(line.size()), below(12)));
      }
      if (line.empty()) line = "0";
    }
    if (first_invalid_utf8(line) < line.size()) continue;  // refused before it comes here
    const auto expected = theirs(line);
    ++(expected ? accepted : refused);
    if (ours(line) != expected) FAIL_CHECK("another opinion about: " << line);
  }
  CHECK((accepted > 5000 && refused > 5000));
}
