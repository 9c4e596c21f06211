#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "monitoring/plots/axis.h"
#include "monitoring/plots/chart.h"
#include "monitoring/plots/markup.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

DecimatedCurve curve_of(const std::vector<double>& values) {
  DecimatedCurve curve;
  for (std::size_t i = 0; i < values.size(); ++i) curve.add(static_cast<double>(i + 1), values[i]);
  return curve;
}

DecimatedCurve falling(int points) {
  std::vector<double> values;
  for (int i = 1; i <= points; ++i) values.push_back(10.0 / i);
  return curve_of(values);
}

/// Both forms of a chart of one curve.
std::vector<std::string> drawn(const DecimatedCurve& curve, const Series& look, bool from_zero = false) {
  Chart chart{.title = "x", .from_zero = from_zero};
  chart.add(look, curve);
  return {chart_figure(chart), chart_picture("title", "", {chart})};
}

}  // namespace

TEST_CASE("chart: each series has its class, and its marks in the legend") {
  Chart chart{.title = "Loss <&>", .unit = "nats"};
  chart.add({.name = "training", .smooth = true}, falling(500));
  chart.add({.name = "a\"b", .marked = true}, falling(5));
  for (const std::string& text : {chart_figure(chart), chart_picture("t", "s", {chart})}) {
    check_picture(text);
    CHECK(has(text, "Loss &lt;&amp;&gt;"));
    CHECK(has(text, "a&quot;b"));
    CHECK(times_in(text, "class=\"c c0\"") == 2);  // the curve, and its line in the legend
    CHECK(places_of(text, "c c0").size() == 500);
    CHECK(places_of(text, "b b0").size() == 1000);
    CHECK(times_in(text, "<rect class=\"m1\"") == 6);
    CHECK(has(text, ">2<"));  // the second's last value
  }
}

TEST_CASE("chart: values are at their places on axes that begin at zero or not") {
  for (const std::string& text : drawn(curve_of({0, 5, 10}), {.name = "s"}, true)) {
    const auto places = places_of(text, "c c0");
    REQUIRE(places.size() == 3);
    CHECK(places[0] == std::pair(64.0, 204.0));
    CHECK(places[1] == std::pair(247.0, 111.6));  // the axis ends at 10.5
    CHECK(places[2] == std::pair(430.0, 19.2));
    CHECK(has(text, "y=\"208.0\" text-anchor=\"end\">0<"));
    CHECK(has(text, "x=\"247.0\" y=\"221\" text-anchor=\"middle\">2<"));
  }
  const auto places = places_of(drawn(curve_of({5, 10}), {.name = "s"})[0], "c c0");
  REQUIRE(places.size() == 2);
  CHECK(places[0].second == Approx(204 - 194 * 0.05 / 1.1).margin(0.05));
}

TEST_CASE("chart: no points, one point and equal points are pictures too") {
  for (const std::string& text : drawn({}, {.name = "empty series"})) {
    CHECK(has(text, "nothing recorded"));
    CHECK_FALSE(has(text, "empty series"));
  }
  DecimatedCurve one;
  one.add(7, 3);
  for (const DecimatedCurve& curve : {one, curve_of(std::vector<double>(9, 0.0))}) {
    for (const bool from_zero : {false, true}) {
      for (const std::string& text : drawn(curve, {.name = "s"}, from_zero)) {
        check_picture(text);
        CHECK(has(text, curve.buckets().size() == 1 ? ">7<" : ">8<"));
      }
    }
  }
  CHECK(times_in(drawn(one, {.name = "s"})[0], "<circle") == 1);
}

TEST_CASE("chart: one spike does not flatten the curve") {
  DecimatedCurve curve;
  for (int i = 1; i <= 300; ++i) curve.add(i, i == 150 ? 1e6 : 2 + std::sin(i));
  // The mean of the buckets around the spike is in the picture; the spike itself is not.
  for (const std::string& text : drawn(curve, {.name = "s", .smooth = true})) CHECK_FALSE(has(text, ">1M<"));
}

TEST_CASE("chart: the largest and least numbers are drawn in few characters") {
  constexpr double kHuge = 1.7e308, kTiny = 5e-324;
  const std::vector<std::vector<double>> hostile = {
      {kHuge, -kHuge, kHuge}, {kHuge, kHuge}, {0, kTiny, 0}, {kTiny, kTiny}, {1, std::nan(""), INFINITY, -INFINITY, 2}};
  for (const auto& values : hostile) {
    for (const bool from_zero : {false, true}) {
      for (const std::string& text :
           drawn(curve_of(values), {.name = "s", .smooth = true, .marked = true}, from_zero)) {
        check_picture(text);
        CHECK(text.size() < 7000);
        for (const auto& [x, y] : places_of(text, "c c0")) CHECK(std::abs(y) <= 1e5);
      }
    }
  }
  DecimatedCurve far;
  for (const double step : {-kHuge, 0.0, kHuge}) far.add(step, 1);
  for (const std::string& text : drawn(far, {.name = "s"})) check_picture(text);
  far = {};
  far.add(kHuge, 1);
  for (const std::string& text : drawn(far, {.name = "s"})) check_picture(text);
}

TEST_CASE("chart: a picture has its charts in a column, with room for names") {
  Chart few{.title = "Few", .unit = "<unit>", .width = 600};
  few.add({.name = "one", .smooth = true}, falling(100));
  Chart many{.title = "Many", .width = 600};
  for (int i = 0; i < 9; ++i) {
    many.add({.name = fmt::format("{}{}", i, std::string(60, 'n')), .marked = true}, falling(3));
  }
  const std::string text = chart_picture("<title>\x1b", "sub & title", {few, many, {.title = "None"}});
  check_picture(text);
  CHECK(text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 648 "));
  CHECK(times_in(text, "&lt;title&gt;\\x1b</") == 2);
  for (const char* part : {"sub &amp; title<", ">Few (&lt;unit&gt;)<", ">Many<", ">None<", "nothing recorded"}) {
    CHECK(has(text, part));
  }
  CHECK(has(text, "y=\"180\">8nnn"));  // the ninth row of names
  CHECK(times_in(text, "http") == 1);  // the name space; nothing is loaded from anywhere
  CHECK_FALSE(has(text, "var("));
  CHECK(places_of(text, "c c0").size() == 100 + 3 + 3);  // the ninth series looks like the first again
  // As high as its three headings, eleven rows of names, and two charts.
  const double height = std::stod(text.substr(text.find(" height=\"") + 9));
  CHECK(height == 64 + 3 * 24 + 11 * 20 + 2 * (240 + 12) + 8);
}

TEST_CASE("chart: a page's style has every look in light and in dark") {
  const std::string style = chart_style();
  for (int i = 0; i < 8; ++i) CHECK(times_in(style, fmt::format(".m{}{{", i)) == 2);
  CHECK(style.find(".m0{") < style.find("prefers-color-scheme:dark"));
  CHECK(std::count(style.begin(), style.end(), '{') == std::count(style.begin(), style.end(), '}'));
}

TEST_CASE("labels: short where there is little room") {
  CHECK(short_label(12345) == "12.35k");
  CHECK(short_label(3e6) == "3M");
  CHECK(short_label(-2.5e9) == "-2.5G");
  CHECK(short_label(9999) == "9,999");
  CHECK(short_label(0.0003) == "0.0003");
}
