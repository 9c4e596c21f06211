// The page about a cleaned corpus: steps in their order, rules with examples, clusters, lengths and languages.
#include "monitoring/reports/cleaning_page.h"

#include "support/catch.h"

using namespace megatron;

namespace {

nlohmann::ordered_json report_of(const std::string& step, int read, int kept) {
  return {{"step", step}, {"documents", {{"read", read}, {"kept", kept}, {"bad", 1}}}};
}

std::size_t place(const std::string& page, const std::string& words) {
  CAPTURE(words);
  const std::size_t at = page.find(words);
  REQUIRE(at != page.npos);
  return at;
}

}  // namespace

TEST_CASE("cleaning page: steps in the order in which they were played") {
  nlohmann::ordered_json first = report_of("urls", 4000, 3000), last = report_of("duplicates", 3000, 1500);
  first["removed"]["domain"] = {{"documents", 1234},
                                {"examples", {{{"file", "a.jsonl"}, {"byte", 77}, {"text", "<b>x</b>"}}}}};
  first["removed"]["malformed"] = {{"documents", 0}, {"examples", nlohmann::json::array()}};
  last["duplicates"] = {{"compared", 3000}, {"clusters_of_size", {{"2", 40}, {"3", 1}}}};
  last["earlier"] = nlohmann::ordered_json::array({first});
  const auto read = nlohmann::ordered_json::parse(last.dump());  // as from a file: counts are unsigned
  const std::string page = cleaning_page("data/x", read, {{{-1, 2}, {0, 3}, {10, 5000}}, {{"de", 9}, {"en", 4999}}});
  CHECK(place(page, "<h2>urls</h2>") < place(page, "<h2>duplicates</h2>"));
  place(page, "<td>75.0</td>");
  place(page, "<td>50.0</td>");
  place(page, "removed by domain");
  place(page, "a.jsonl, byte 77");
  place(page, "&lt;b&gt;x&lt;/b&gt;");
  CHECK(page.find("malformed") == page.npos);
  CHECK(place(page, "clusters of 2") < place(page, "clusters of 3"));
  CHECK(place(page, "0 characters") < place(page, "1024 to 2047"));
  CHECK(place(page, "<span>en</span>") < place(page, "<span>de</span>"));
}

TEST_CASE("cleaning page: reports of other shapes are no error") {
  for (const char* text : {"{}", "[]", "3", R"({"step": "a", "documents": 5, "removed": [1], "duplicates": {"x": -1}})",
                           R"({"earlier": {"a": null}, "removed": {"r": {"documents": 3, "examples": []}}})"}) {
    CAPTURE(text);
    CHECK(cleaning_page("f", nlohmann::ordered_json::parse(text), {}).ends_with("</html>\n"));
  }
}
