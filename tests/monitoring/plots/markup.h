// Checks of SVG and HTML texts.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/parts_of_text.h"

namespace megatron::test {

/// Every tag closes in order, attributes are quoted, and entities are those that all readers know.
inline void check_well_formed(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t at = text.find_first_of("<&"); at != text.npos; at = text.find_first_of("<&", at + 1)) {
    INFO("at " << text.substr(at > 80 ? at - 80 : 0, 160));
    if (text[at] == '&') {
      const std::string entity = text.substr(at, text.find(';', at) - at + 1);
      REQUIRE((entity == "&amp;" || entity == "&lt;" || entity == "&gt;" || entity == "&quot;"));
      continue;
    }
    const std::size_t end = text.find('>', at);
    REQUIRE(end != text.npos);
    const std::string tag = text.substr(at + 1, end - at - 1);
    REQUIRE(tag.find('<') == tag.npos);
    REQUIRE(std::count(tag.begin(), tag.end(), '"') % 2 == 0);
    if (tag[0] == '/') {
      REQUIRE_FALSE(open.empty());
      REQUIRE(open.back() == tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find_first_of(" /\n", 1)));
    }
  }
  CHECK(open.empty());
}

/// The same for a chart, whose places and labels are numbers too.
inline void check_picture(const std::string& text) {
  check_well_formed(text);
  CHECK_FALSE(has(text, "nan"));
  CHECK_FALSE(has(text, "inf"));
}

/// Points of all polylines of a class, as in "c c0".
inline std::vector<std::pair<double, double>> places_of(const std::string& text, const std::string& its_class) {
  std::vector<std::pair<double, double>> places;
  const std::string before = "<polyline class=\"" + its_class + "\" points=\"";
  for (std::size_t at = 0; (at = text.find(before, at)) != std::string::npos;) {
    at += before.size();
    std::istringstream points(text.substr(at, text.find('"', at) - at));
    double x = 0, y = 0;
    for (char comma = 0; points >> x >> comma >> y;) places.emplace_back(x, y);
  }
  return places;
}

}  // namespace megatron::test
