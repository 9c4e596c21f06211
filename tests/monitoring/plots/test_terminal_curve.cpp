#include "base/text/characters.h"
#include "monitoring/plots/terminal_curve.h"
#include "support/catch.h"

using namespace megatron;

namespace {

std::vector<DecimatedCurve::Bucket> points(const std::vector<double>& values) {
  DecimatedCurve curve;
  for (std::size_t i = 0; i < values.size(); ++i) curve.add(static_cast<double>(i + 1), values[i]);
  return curve.buckets();
}

}  // namespace

TEST_CASE("terminal curve: a falling line goes from upper left to lower right") {
  const std::vector<std::string> lines =
      terminal_curve(points({4, 3, 2, 1}), {.columns = 20, .rows = 5, .braille = false});
  REQUIRE(lines.size() == 5);
  CHECK(lines[0] == "       4 |**        ");
  CHECK(lines[3] == "       1 |        **");
  CHECK(lines[4] == "    step  1        4");
  for (const std::string& line : lines) CHECK(line.size() <= 20);
}

TEST_CASE("terminal curve: braille has two by four dots a character") {
  const std::vector<std::string> lines = terminal_curve(points({0, 1}), {.columns = 20, .rows = 5, .braille = true});
  REQUIRE(lines.size() == 5);
  CHECK(lines[3].find("\xe2\xa1") != std::string::npos);  // U+2840: the lowest dot at the left
  for (const std::string& line : lines) CHECK(first_characters(line, 20) == line);
}

TEST_CASE("terminal curve: no curve without two points or without room") {
  CHECK(terminal_curve(points({1}), {}).empty());
  CHECK(terminal_curve(points({1, 2}), {.columns = 19}).empty());
  CHECK(terminal_curve(points({1, 2}), {.columns = 80, .rows = 3}).empty());
  CHECK(terminal_curve(points({2, 2, 2}), {}).size() == 12);
}

TEST_CASE("terminal curve: points far outside of the axes are drawn at its ends") {
  constexpr double kFar = 2147483648, kHuge = 1.7e308;
  std::vector<DecimatedCurve::Bucket> curve = points({4, 3, 2, 1});
  for (const double x : {kFar, -kFar, kHuge, -kHuge}) {
    curve[1].x = x;
    for (const int columns : {20, 80, 1000}) CHECK(terminal_curve(curve, {.columns = columns}).size() == 12);
  }
  curve[2].mean = kHuge;
  curve[3].mean = -kHuge;  // whose range is no number
  CHECK(terminal_curve(curve, {}).size() == 12);
  std::swap(curve.front().x, curve.back().x);
  CHECK(terminal_curve(curve, {}).size() == 12);
}

TEST_CASE("first characters: whole ones, of any length") {
  CHECK(first_characters("abc", 2) == "ab");
  CHECK(first_characters("a\xe2\x94\x82z", 2) == "a\xe2\x94\x82");
  CHECK(first_characters("ab", 5) == "ab");
  CHECK(first_characters("", 3).empty());
}
