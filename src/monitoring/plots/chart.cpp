#include "monitoring/plots/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "monitoring/plots/axis.h"
#include "monitoring/plots/svg.h"

namespace megatron {

namespace {

using Bucket = DecimatedCurve::Bucket;
using Places = std::vector<std::pair<double, double>>;

constexpr double kLeft = 64, kRightRoom = 10, kTop = 10, kBottomRoom = 36;  // room around the axes
constexpr double kMargin = 24, kRow = 20;                                   // margin and rows of a picture
constexpr std::size_t kMostMarks = 40;

struct Look {
  const char *light, *dark, *dashes;
};
constexpr Look kLooks[] = {{"#1f5fbf", "#7ab3ff", "none"}, {"#c2410c", "#ff9b66", "7 3"},
                           {"#1a7f45", "#6fd19a", "2 3"},  {"#7c3aed", "#c4a6ff", "9 3 2 3"},
                           {"#0e7490", "#62cfe6", "4 2"},  {"#be185d", "#ff8fc0", "1 2"},
                           {"#4d6b00", "#c3d96b", "12 4"}, {"#6b4226", "#d9b08c", "6 2 1 2 1 2"}};

std::string look_style(const char* Look::*colour) {
  std::string rules;
  for (std::size_t i = 0; i < std::size(kLooks); ++i) {
    rules += fmt::format(".c{0}{{stroke:{1};stroke-dasharray:{2}}}.b{0}{{fill:{1};stroke:{1}}}.m{0}{{fill:{1}}}\n", i,
                         kLooks[i].*colour, kLooks[i].dashes);
  }
  return rules;
}

std::string panel_style(const char* labels, const char* grid) {
  return fmt::format(
      "text{{fill:{0}}}\n.a{{stroke:{0};fill:none}}\n.g{{stroke:{1};fill:none}}\n"
      ".c{{fill:none;stroke-width:1.8;stroke-linejoin:round}}\n.b{{stroke-width:1;opacity:.35}}\n{2}",
      labels, grid, look_style(&Look::light));
}

struct Line {
  const Series* series;
  std::size_t look;
  std::vector<double> values;  // one for each of its points
};

/// Circle, square, triangle, diamond: the look's mark around a place.
std::string mark(std::size_t look, double x, double y) {
  constexpr double r = 4;
  const std::string its_class = fmt::format("class=\"m{}\"", look);
  switch (look % 4) {
    case 0: return fmt::format("<circle {} cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", its_class, x, y, r);
    case 1:
      return fmt::format("<rect {} x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"/>", its_class, x - r + 0.5,
                         y - r + 0.5, 2 * r - 1, 2 * r - 1);
    case 2: return fmt::format("<path {} d=\"M{:.1f} {:.1f}l{} {}h{}z\"/>", its_class, x, y - r, r, 2 * r - 1, -2 * r);
    default:
      return fmt::format("<path {} d=\"M{:.1f} {:.1f}l{r} {r}l{n} {r}l{n} {n}z\"/>", its_class, x, y - r,
                         fmt::arg("r", r), fmt::arg("n", -r));
  }
}

std::string polyline(const std::string& its_class, const Places& places) {
  std::string points;
  for (const auto& [x, y] : places) points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", x, y);
  return fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n", its_class, points);
}

std::string last_value(const Line& line) {
  if (!line.series->joined) return "";
  const double value = line.values.back();
  return std::abs(value) >= 1e4 ? short_label(value) : fmt::format("{:.5g}", value);
}

/// A piece of a line as it is drawn, in the middle of 34 times 12 units.
std::string sample(const Line& line, double x, double y) {
  return (line.series->joined ? fmt::format("<path class=\"c c{}\" d=\"M{} {}h32\"/>", line.look, x - 16, y) : "") +
         (line.series->marked ? mark(line.look, x, y) : "");
}

/// A chart's axes and curves, which a figure and a picture have in common, and the legend of either.
class Panel {
 public:
  explicit Panel(const Chart& chart)
      : chart_(chart), right_(chart.width - kRightRoom), bottom_(chart.height - kBottomRoom) {
    for (std::size_t i = 0; i < chart.series.size(); ++i) {
      const Series& series = chart.series[i];
      if (series.points.empty()) continue;
      Line line{&series, i % std::size(kLooks), {}};
      if (series.smooth) {
        line.values = smoothed(series.points);
      } else {
        for (const Bucket& point : series.points) line.values.push_back(point.mean);
      }
      lines_.push_back(std::move(line));
    }
    if (!empty()) find_ranges();
  }

  bool empty() const { return lines_.empty(); }

  /// Elements of an SVG element of the chart's size.
  std::string draw() const {
    // Curves that leave the panel are cut off there.
    std::string out =
        grid() + fmt::format("<svg x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\" viewBox=\"{0} {1} {2} {3}\">\n",
                             kLeft - 5, kTop - 5, right_ - kLeft + 10, bottom_ - kTop + 10);
    for (const Line& line : lines_) out += curve(line);
    return out + "</svg>\n";
  }

  std::string figure_legend() const {
    std::string out = "<ul class=\"legend\">";
    for (const Line& line : lines_) {
      out += fmt::format(
          "<li><svg width=\"34\" height=\"12\" viewBox=\"0 0 34 12\" aria-hidden=\"true\">{}</svg>{} <b>{}</b></li>",
          sample(line, 17, 6), escaped(line.series->name), last_value(line));
    }
    return out + "</ul>\n";
  }

  /// Rows of entries from x = 0 on, and how many there are. SVG has no widths of texts: these are generous guesses.
  std::pair<std::string, int> picture_legend() const {
    std::string out;
    double x = 0;
    int rows = 1;
    for (const Line& line : lines_) {
      const std::string value = last_value(line);
      const double width = 64 + 6.8 * static_cast<double>(line.series->name.size() + value.size());
      if (x > 0 && x + width > chart_.width) {
        x = 0;
        ++rows;
      }
      const double y = kRow * rows;
      out += sample(line, x + 16, y - 4) + fmt::format("<text x=\"{:.1f}\" y=\"{}\">{} <tspan>{}</tspan></text>\n",
                                                       x + 40, y, escaped(line.series->name), value);
      x += width;
    }
    return {out, rows};
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
    y_ = axis_for(chart_.from_zero ? low : low - margin, high + margin, bottom_, kTop);
    x_ = last > first ? axis_for(first, last, kLeft, right_) : axis_for(first - 1, first + 1, kLeft, right_);
  }

  std::string grid() const {
    std::string out;
    for (const double tick : nice_ticks(y_.low, y_.high, static_cast<int>(chart_.height / 48))) {
      out += fmt::format("<path class=\"g\" d=\"M{} {:.1f}H{}\"/>", kLeft, y_(tick), right_);
      out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 6, y_(tick) + 4,
                         short_label(tick));
    }
    out += fmt::format("<path class=\"a\" d=\"M{} {}V{}H{}\"/>\n", kLeft, kTop, bottom_, right_);
    for (const double tick : nice_ticks(x_.low, x_.high, static_cast<int>(chart_.width / 88))) {
      if (tick != std::floor(tick)) continue;  // there are only whole steps
      // The last label may not leave the picture.
      const char* const anchor = x_(tick) > right_ - 12 ? "end" : "middle";
      out += fmt::format("<path class=\"a\" d=\"M{:.1f} {}v4\"/>", x_(tick), bottom_);
      out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", x_(tick), bottom_ + 17, anchor,
                         short_label(tick));
    }
    return out + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">step</text>\n", right_, chart_.height - 4);
  }

  std::string curve(const Line& line) const {
    const Series& series = *line.series;
    std::string out;
    Places places, band;
    for (std::size_t i = 0; i < line.values.size(); ++i) {
      places.emplace_back(x_(series.points[i].x), y_(line.values[i]));
    }
    if (series.smooth) {
      for (const Bucket& point : series.points) band.emplace_back(x_(point.x), y_(point.maximum));
      for (auto point = series.points.rbegin(); point != series.points.rend(); ++point) {
        band.emplace_back(x_(point->x), y_(point->minimum));
      }
      out += polyline(fmt::format("b b{}", line.look), band);
    }
    const bool joined = series.joined && places.size() > 1;
    if (joined) out += polyline(fmt::format("c c{}", line.look), places);
    if (joined && !series.marked) return out;
    const std::size_t every = 1 + (places.size() - 1) / kMostMarks;
    for (std::size_t i = (places.size() - 1) % every; i < places.size(); i += every) {
      out += mark(line.look, places[i].first, places[i].second);
    }
    return out + '\n';
  }

  const Chart& chart_;
  double right_, bottom_;
  std::vector<Line> lines_;
  Axis x_, y_;
};

}  // namespace

void Chart::add(Series one, const DecimatedCurve& curve) {
  one.points = curve.buckets();
  series.push_back(std::move(one));
}

std::string chart_figure(const Chart& chart) {
  const std::string caption =
      fmt::format("<figcaption>{}{}</figcaption>", escaped(chart.title),
                  chart.unit.empty() ? "" : fmt::format(" <small>{}</small>", escaped(chart.unit)));
  const Panel panel(chart);
  if (panel.empty()) return fmt::format("<figure>{}\n<p class=\"none\">nothing recorded</p></figure>\n", caption);
  return fmt::format("<figure>{}\n<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n{}</figure>\n",
                     caption, chart.width, chart.height, escaped(chart.title), panel.draw(), panel.figure_legend());
}

std::string chart_style() {
  return R"(figure{margin:0;min-width:0}
figure>svg{display:block;width:100%;height:auto;font-size:12px}
@media(max-width:32rem){figure>svg{font-size:15px}}
figcaption{font-weight:600}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1rem;margin:.2rem 0 0;padding:0;font-size:.8125rem;color:var(--soft);overflow-wrap:anywhere}
.legend svg{vertical-align:middle;margin-right:.35rem}
.legend b{color:var(--text);font-weight:600}
)" + panel_style("var(--soft)", "var(--line)") +
         "@media(prefers-color-scheme:dark){\n" + look_style(&Look::dark) + "}\n";
}

std::string chart_picture(const std::string& title, const std::string& subtitle, const std::vector<Chart>& charts) {
  std::string body;
  double width = 0, y = 64;
  for (const Chart& chart : charts) {
    const Panel panel(chart);
    const auto [legend, rows] = panel.picture_legend();
    const std::string unit = chart.unit.empty() ? "" : fmt::format(" ({})", chart.unit);
    body += fmt::format("<g transform=\"translate({} {})\">\n<text class=\"h\" y=\"0\">{}</text>\n{}</g>\n", kMargin,
                        y + 16, escaped(chart.title + unit),
                        panel.empty() ? "<text y=\"20\">nothing recorded</text>\n" : legend);
    y += 24 + kRow * rows;
    if (!panel.empty()) {
      body += fmt::format("<g transform=\"translate({} {})\">\n{}</g>\n", kMargin, y, panel.draw());
      y += chart.height + 12;
    }
    width = std::max(width, chart.width + 2 * kMargin);
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"12\">\n<title>{2}</title>\n<style>\n"
      "{3}.h,tspan{{fill:#14181f;font-weight:bold}}\n</style>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n"
      "<text class=\"h\" x=\"{4}\" y=\"34\" font-size=\"18\">{2}</text>\n"
      "<text x=\"{4}\" y=\"54\" font-size=\"13\">{5}</text>\n{6}</svg>\n",
      width, y + 8, escaped(title), panel_style("#525b68", "#d5dae1"), kMargin, escaped(subtitle), body);
}

}  // namespace megatron
