#include "plots/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plots/axis.h"
#include "plots/svg.h"

namespace megatron {

namespace {

using Bucket = DecimatedCurve::Bucket;

constexpr double kWidth = 440, kHeight = 240, kLeft = 64, kRight = 430, kTop = 10, kBottom = 204;
constexpr std::size_t kMostMarks = 40;
constexpr int kStyles = 8;

struct Line {
  const Series* series;
  std::vector<double> values;  // one for each of its points
};

/// Circle, square, triangle, diamond: the style's mark around a place.
std::string mark(int style, double x, double y) {
  constexpr double r = 4;
  const std::string look = fmt::format("class=\"m{}\"", style % kStyles);
  switch (style % 4) {
    case 0: return fmt::format("<circle {} cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", look, x, y, r);
    case 1:
      return fmt::format("<rect {} x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"/>", look, x - r + 0.5,
                         y - r + 0.5, 2 * r - 1, 2 * r - 1);
    case 2: return fmt::format("<path {} d=\"M{:.1f} {:.1f}l{} {}h{}z\"/>", look, x, y - r, r, 2 * r - 1, -2 * r);
    default:
      return fmt::format("<path {} d=\"M{:.1f} {:.1f}l{r} {r}l{n} {r}l{n} {n}z\"/>", look, x, y - r, fmt::arg("r", r),
                         fmt::arg("n", -r));
  }
}

std::string last_value(double value) {
  return std::abs(value) >= 1e4 ? short_label(value) : fmt::format("{:.5g}", value);
}

class Figure {
 public:
  explicit Figure(const Chart& chart) : chart_(chart) {
    for (const Series& series : chart.series) {
      if (series.points.empty()) continue;
      Line line{&series, {}};
      if (series.smooth) {
        line.values = smoothed(series.points);
      } else {
        for (const Bucket& point : series.points) line.values.push_back(point.mean);
      }
      lines_.push_back(std::move(line));
    }
  }

  std::string draw() {
    out_ = fmt::format("<figure><figcaption>{}{}</figcaption>\n", escaped(chart_.title),
                       chart_.unit.empty() ? "" : fmt::format(" <small>{}</small>", escaped(chart_.unit)));
    if (lines_.empty()) return out_ + "<p class=\"none\">nothing recorded</p></figure>\n";
    find_ranges();
    out_ += fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth, kHeight,
                        escaped(chart_.title));
    grid();
    // Curves that leave the panel are cut off there.
    out_ += fmt::format("<svg x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\" viewBox=\"{0} {1} {2} {3}\">\n",
                        kLeft - 5, kTop - 5, kRight - kLeft + 10, kBottom - kTop + 10);
    for (const Line& line : lines_) curve(line);
    out_ += "</svg></svg>\n";
    legend();
    return out_ + "</figure>\n";
  }

 private:
  void find_ranges() {
    std::vector<double> highs;
    double low = INFINITY, high = -INFINITY, first = INFINITY, last = -INFINITY;
    if (chart_.last_step > 0) {
      first = chart_.first_step;
      last = chart_.last_step;
    }
    for (const Line& line : lines_) {
      first = std::min(first, line.series->points.front().x);
      last = std::max(last, line.series->points.back().x);
      for (const double value : line.values) {
        low = std::min(low, value);
        high = std::max(high, value);
      }
      if (!line.series->smooth) continue;
      for (const Bucket& point : line.series->points) {
        low = std::min(low, point.minimum);
        highs.push_back(point.maximum);
      }
    }
    if (!highs.empty()) {  // a hundredth of the points may leave the picture, or one spike would flatten all the rest
      std::sort(highs.begin(), highs.end());
      high = std::max(high, highs[highs.size() - 1 - highs.size() / 100]);
    }
    if (chart_.from_zero) low = std::min(low, 0.0);
    if (chart_.from_zero && high <= 0) high = 1;
    const double margin = 0.05 * (high - low);
    y_ = axis_for(chart_.from_zero ? low : low - margin, high + margin, kBottom, kTop);
    x_ = axis_for(first, last, kLeft, kRight);
    if (!(last > first)) x_ = {first - 1, first + 1, kLeft, kRight};
  }

  void grid() {
    for (const double tick : nice_ticks(y_.low, y_.high, 5)) {
      out_ += fmt::format("<path class=\"g\" d=\"M{} {:.1f}H{}\"/>", kLeft, y_(tick), kRight);
      out_ += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 6, y_(tick) + 4,
                          short_label(tick));
    }
    out_ += fmt::format("<path class=\"a\" d=\"M{} {}V{}H{}\"/>\n", kLeft, kTop, kBottom, kRight);
    for (const double tick : nice_ticks(x_.low, x_.high, 5)) {
      if (tick != std::floor(tick)) continue;  // there are only whole steps
      // The last label may not leave the picture.
      const char* const anchor = x_(tick) > kRight - 12 ? "end" : "middle";
      out_ += fmt::format("<path class=\"a\" d=\"M{:.1f} {}v4\"/>", x_(tick), kBottom);
      out_ += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", x_(tick), kBottom + 17, anchor,
                          short_label(tick));
    }
    out_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">step</text>\n", kRight, kHeight - 4);
  }

  void curve(const Line& line) {
    const Series& series = *line.series;
    const int style = series.style % kStyles;
    std::vector<std::pair<double, double>> places;
    for (std::size_t i = 0; i < line.values.size(); ++i) {
      places.emplace_back(x_(series.points[i].x), y_(line.values[i]));
    }
    if (series.smooth) {
      std::vector<std::pair<double, double>> band;
      for (const Bucket& point : series.points) band.emplace_back(x_(point.x), y_(point.maximum));
      for (auto point = series.points.rbegin(); point != series.points.rend(); ++point) {
        band.emplace_back(x_(point->x), y_(point->minimum));
      }
      out_ += fmt::format("<polyline class=\"b b{}\" points=\"{}\"/>\n", style, points(band));
    }
    const bool joined = series.joined && places.size() > 1;
    if (joined) out_ += fmt::format("<polyline class=\"c c{}\" points=\"{}\"/>\n", style, points(places));
    if (joined && !series.marked) return;
    const std::size_t every = 1 + (places.size() - 1) / kMostMarks;
    for (std::size_t i = (places.size() - 1) % every; i < places.size(); i += every) {
      out_ += mark(style, places[i].first, places[i].second);
    }
    out_ += '\n';
  }

  void legend() {
    out_ += "<ul class=\"legend\">";
    for (const Line& line : lines_) {
      const int style = line.series->style % kStyles;
      out_ += fmt::format(
          "<li><svg width=\"34\" height=\"12\" viewBox=\"0 0 34 12\" aria-hidden=\"true\">"
          "{}{}</svg>{}{}</li>",
          line.series->joined ? fmt::format("<path class=\"c c{}\" d=\"M1 6H33\"/>", style) : "",
          line.series->marked ? mark(style, 17, 6) : "", escaped(line.series->name),
          line.series->joined ? fmt::format(" <b>{}</b>", last_value(line.values.back())) : "");
    }
    out_ += "</ul>\n";
  }

  const Chart& chart_;
  std::vector<Line> lines_;
  Axis x_, y_;
  std::string out_;
};

}  // namespace

std::string short_label(double value) {
  const double size = std::abs(value);
  if (size >= 1e15 || size < 1e4) return tick_label(value);
  constexpr std::pair<double, const char*> kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, letter] : kUnits) {
    if (size >= unit) return fmt::format("{:.4g}{}", value / unit, letter);
  }
  return tick_label(value);
}

std::string chart_figure(const Chart& chart) {
  return Figure(chart).draw();
}

const char* chart_style() {
  return R"(:root{--c0:#1f5fbf;--c1:#c2410c;--c2:#1a7f45;--c3:#7c3aed;--c4:#0e7490;--c5:#be185d;--c6:#4d6b00;--c7:#6b4226}
@media(prefers-color-scheme:dark){:root{--c0:#7ab3ff;--c1:#ff9b66;--c2:#6fd19a;--c3:#c4a6ff;--c4:#62cfe6;--c5:#ff8fc0;--c6:#c3d96b;--c7:#d9b08c}}
figure{margin:0;min-width:0}
figure>svg{display:block;width:100%;height:auto;font-size:12px}
@media(max-width:32rem){figure>svg{font-size:15px}}
figcaption{font-weight:600}
svg text{fill:var(--soft)}
.g{stroke:var(--line);fill:none}
.a{stroke:var(--soft);fill:none}
.c{fill:none;stroke-width:1.8;stroke-linejoin:round}
.b{stroke-width:.8;opacity:.28}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1rem;margin:.2rem 0 0;padding:0;font-size:.8125rem;color:var(--soft);overflow-wrap:anywhere}
.legend svg{vertical-align:middle;margin-right:.35rem}
.legend b{color:var(--text);font-weight:600}
.b0{fill:var(--c0);stroke:var(--c0)}.b1{fill:var(--c1);stroke:var(--c1)}.b2{fill:var(--c2);stroke:var(--c2)}.b3{fill:var(--c3);stroke:var(--c3)}.b4{fill:var(--c4);stroke:var(--c4)}.b5{fill:var(--c5);stroke:var(--c5)}.b6{fill:var(--c6);stroke:var(--c6)}.b7{fill:var(--c7);stroke:var(--c7)}
.m0{fill:var(--c0)}.m1{fill:var(--c1)}.m2{fill:var(--c2)}.m3{fill:var(--c3)}.m4{fill:var(--c4)}.m5{fill:var(--c5)}.m6{fill:var(--c6)}.m7{fill:var(--c7)}
.c0{stroke:var(--c0)}
.c1{stroke:var(--c1);stroke-dasharray:7 3}
.c2{stroke:var(--c2);stroke-dasharray:2 3}
.c3{stroke:var(--c3);stroke-dasharray:9 3 2 3}
.c4{stroke:var(--c4);stroke-dasharray:4 2}
.c5{stroke:var(--c5);stroke-dasharray:1 2}
.c6{stroke:var(--c6);stroke-dasharray:12 4}
.c7{stroke:var(--c7);stroke-dasharray:6 2 1 2 1 2}
)";
}

}  // namespace megatron
