#include <algorithm>
#include <cmath>

#include "plots/chart.h"
#include "plots/svg.h"
#include "support/catch.h"

using namespace megatron;

namespace {

DecimatedCurve falling(int points) {
  DecimatedCurve curve;
  for (int i = 1; i <= points; ++i) curve.add(i, 10.0 / i);
  return curve;
}

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++count;
  return count;
}

}  // namespace

TEST_CASE("chart: series differ by class and marked ones have marks in the legend") {
  const std::string text =
      chart_figure({.title = "Loss <&>",
                    .unit = "nats",
                    .series = {{.name = "training", .points = falling(500).buckets(), .smooth = true},
                               {.name = "a\"b", .points = falling(5).buckets(), .marked = true, .style = 1}}});
  CHECK(text.find("Loss &lt;&amp;&gt;") != std::string::npos);
  CHECK(text.find("a&quot;b") != std::string::npos);
  CHECK(count_of(text, "class=\"c c0\"") == 2);  // the curve, and its line in the legend
  CHECK(count_of(text, "class=\"b b0\"") == 1);
  CHECK(count_of(text, "<rect class=\"m1\"") == 6);
  CHECK(count_of(text, "<svg") == count_of(text, "</svg>"));
  CHECK(text.find("nan") == std::string::npos);
  CHECK(text.find("inf") == std::string::npos);
}

TEST_CASE("chart: no points, one point and equal points are pictures too") {
  CHECK(chart_figure({.title = "x", .unit = "", .series = {{.name = "none", .points = {}}}}).find("nothing recorded") !=
        std::string::npos);
  DecimatedCurve one, equal;
  one.add(7, 3);
  for (int i = 0; i < 9; ++i) equal.add(i, 0);
  for (const DecimatedCurve* curve : {&one, &equal}) {
    for (const bool from_zero : {false, true}) {
      const std::string text = chart_figure(
          {.title = "x", .unit = "", .series = {{.name = "s", .points = curve->buckets()}}, .from_zero = from_zero});
      CHECK(text.find("<svg") != std::string::npos);
      CHECK(text.find("nan") == std::string::npos);
    }
  }
}

TEST_CASE("chart: one spike does not flatten the curve") {
  DecimatedCurve curve;
  for (int i = 1; i <= 300; ++i) curve.add(i, i == 150 ? 1e6 : 2 + std::sin(i));
  const std::string text =
      chart_figure({.title = "x", .unit = "", .series = {{.name = "s", .points = curve.buckets(), .smooth = true}}});
  // The mean of the buckets around the spike is in the picture; the spike itself is not.
  CHECK(text.find(">1M<") == std::string::npos);
}

TEST_CASE("labels: short where there is little room") {
  CHECK(short_label(12345) == "12.35k");
  CHECK(short_label(3e6) == "3M");
  CHECK(short_label(-2.5e9) == "-2.5G");
  CHECK(short_label(9999) == "9,999");
  CHECK(short_label(0.0003) == "0.0003");
}
