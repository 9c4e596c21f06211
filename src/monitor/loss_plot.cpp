#include "monitor/loss_plot.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plots/axis.h"
#include "plots/svg.h"
#include "system/durable_file.h"

namespace megatron {

namespace {

using Bucket = DecimatedCurve::Bucket;

constexpr double kWidth = 960, kHeight = 600, kAccuracyHeight = 130;
constexpr double kLeft = 84, kRight = 936, kRightOfTwoAxes = 868;
constexpr double kLossTop = 72, kLossBottom = 420;
constexpr double kRateTop = 450, kRateBottom = 544;

constexpr const char* kRawColor = "#a9c1e0";
constexpr const char* kSmoothColor = "#1c4f9c";
constexpr const char* kRateColor = "#6b7280";
constexpr const char* kEvaluationColors[] = {"#d1490c", "#1a7f45", "#8a3ffc", "#a56eff"};

class LossPicture {
 public:
  LossPicture(const PlotData& data, const std::string& title)
      : data_(data),
        title_(escaped(title)),
        smooth_(smoothed(data.train_loss.buckets())),
        two_units_(data.loss_name != "language_model" && !smooth_.empty() && !data.evaluations.empty()),
        right_(two_units_ ? kRightOfTwoAxes : kRight),
        lower_(data.accuracies.empty() ? 0 : kAccuracyHeight) {
    find_ranges();
  }

  std::string draw() {
    open();
    if (empty_) {
      text(kWidth / 2, (kLossTop + kLossBottom) / 2, "middle", "no losses recorded yet", 15, "#6b7280");
    } else {
      grid(loss_, kLossTop, kLossBottom, 7, loss_axis_name());
      if (two_units_) evaluation_axis();
      draw_losses();
      if (!data_.accuracies.empty()) draw_accuracies();
      if (!data_.learning_rate.buckets().empty()) draw_rate();
      step_labels();
      legend();
    }
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  // Losses of evaluations are in nats per token. So is the training loss, unless it is one with another weighting: then
  // the evaluations have an axis at the right.
  std::string loss_axis_name() const {
    if (smooth_.empty() || data_.loss_name == "language_model") return "loss (nats per token)";
    return "training loss (" + escaped(data_.loss_name) + ")";
  }

  void evaluation_axis() {
    for (const double tick : nice_ticks(evaluation_.low, evaluation_.high, 7)) {
      line(right_, evaluation_(tick), right_ + 4, evaluation_(tick), "#6b7280");
      text(right_ + 8, evaluation_(tick) + 4, "start", tick_label(tick), 12, "#374151");
    }
    line(right_, kLossTop, right_, kLossBottom, "#6b7280");
    upright_text(kWidth - 12, (kLossTop + kLossBottom) / 2, "validation (nats per token)");
  }

  void find_ranges() {
    const auto& train = data_.train_loss.buckets();
    std::vector<double> lows, highs, values = smooth_, evaluated;
    double first = INFINITY, last = -INFINITY;
    const auto widen = [&](const std::vector<Bucket>& buckets) {
      if (buckets.empty()) return;
      first = std::min(first, buckets.front().x);
      last = std::max(last, buckets.back().x);
    };
    widen(train);
    for (const Bucket& bucket : train) {
      highs.push_back(bucket.maximum);
      lows.push_back(bucket.minimum);
    }
    for (const auto& [split, curve] : data_.evaluations) {
      widen(curve.buckets());
      for (const Bucket& bucket : curve.buckets()) (two_units_ ? evaluated : values).push_back(bucket.mean);
    }
    for (const auto& [task, curve] : data_.accuracies) widen(curve.buckets());
    if (data_.train_lines > 0) {  // the curve's points are in the middle of what they are the mean of
      first = std::min(first, data_.first_step);
      last = std::max(last, data_.last_step);
    }
    empty_ = values.empty();
    if (empty_) return;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    double bottom = *low, top = *high;
    if (!highs.empty()) {  // a hundredth of the points may leave the picture, or one spike would flatten all the rest
      const auto size = static_cast<std::ptrdiff_t>(highs.size());
      std::sort(highs.begin(), highs.end());
      top = std::max(top, highs[size - 1 - size / 100]);
      bottom = std::min(bottom, *std::min_element(lows.begin(), lows.end()));
    }
    const double margin = 0.04 * (top - bottom);
    loss_ = axis_for(bottom - margin, top + margin, kLossBottom, kLossTop);
    evaluation_ = loss_;
    if (!evaluated.empty()) {
      const auto [least, most] = std::minmax_element(evaluated.begin(), evaluated.end());
      const double room = 0.04 * (*most - *least);
      evaluation_ = axis_for(*least - room, *most + room, kLossBottom, kLossTop);
    }
    step_ = axis_for(first, last, kLeft, right_);
  }

  void open() {
    out_ += fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
        "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n<title>{2}</title>\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n"
        "<clipPath id=\"losses\"><rect x=\"{3}\" y=\"{4}\" width=\"{5}\" height=\"{6}\"/></clipPath>\n",
        kWidth, kHeight + lower_, title_, kLeft, kLossTop, right_ - kLeft, kLossBottom - kLossTop);
    text(kLeft, 32, "start", title_, 18, "#111827");
    text(kLeft, 54, "start", summary(), 13, "#4b5563");
  }

  std::string summary() const {
    std::string words;
    if (!smooth_.empty()) {
      words = fmt::format("step {}: training loss {:.4f}", tick_label(data_.last_step), smooth_.back());
    }
    for (const auto& [split, curve] : data_.evaluations) {
      if (curve.buckets().empty()) continue;
      words += fmt::format("{}{} loss {:.4f}", words.empty() ? "" : ", ", escaped(split), curve.buckets().back().mean);
    }
    return words;
  }

  void text(double x, double y, const char* anchor, const std::string& words, int size, const char* color) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\">{}</text>\n",
                        x, y, anchor, size, color, words);
  }

  /// A panel's name, upright at its side.
  void upright_text(double x, double y, const std::string& words) {
    out_ += fmt::format(
        "<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" text-anchor=\"middle\" font-size=\"13\" "
        "fill=\"#111827\">{}</text>\n",
        x, y, words);
  }

  void line(double x1, double y1, double x2, double y2, const char* color, double width = 1) {
    out_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{}\"/>\n", x1, y1,
        x2, y2, color, width);
  }

  void polyline(const std::vector<std::pair<double, double>>& places, const char* color, double width) {
    if (places.size() == 1) return circle(places[0].first, places[0].second, color, 2.5);
    out_ += fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"/>\n",
        points(places), color, width);
  }

  void circle(double x, double y, const char* color, double radius) {
    out_ += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\" stroke=\"#ffffff\" stroke-width=\"1\"/>\n", x, y,
        radius, color);
  }

  /// Horizontal grid lines with labels, the panel's frame and its name.
  void grid(const Axis& vertical, double top, double bottom, int count, const std::string& name) {
    for (const double tick : nice_ticks(vertical.low, vertical.high, count)) {
      line(kLeft, vertical(tick), right_, vertical(tick), "#e5e7eb");
      text(kLeft - 8, vertical(tick) + 4, "end", tick_label(tick), 12, "#374151");
    }
    for (const double tick : nice_ticks(step_.low, step_.high, 9))
      line(step_(tick), top, step_(tick), bottom, "#f3f4f6");
    line(kLeft, bottom, right_, bottom, "#6b7280");
    line(kLeft, top, kLeft, bottom, "#6b7280");
    upright_text(20, (top + bottom) / 2, name);
  }

  void draw_losses() {
    out_ += "<g clip-path=\"url(#losses)\">\n";
    std::vector<std::pair<double, double>> raw, smooth;
    const auto& train = data_.train_loss.buckets();
    for (std::size_t i = 0; i < train.size(); ++i) {
      const double x = step_(train[i].x);
      raw.emplace_back(x, loss_(train[i].minimum));
      if (train[i].count > 1) raw.emplace_back(x, loss_(train[i].maximum));
      smooth.emplace_back(x, loss_(smooth_[i]));
    }
    if (!train.empty()) {
      if (smooths()) polyline(raw, kRawColor, 1);
      polyline(smooths() ? smooth : raw, kSmoothColor, 2);
    }
    out_ += "</g>\n";
    std::size_t index = 0;
    for (const auto& [split, curve] : data_.evaluations) draw_marked(curve, evaluation_, evaluation_color(index++));
  }

  /// Between losses and learning rate, in percent, with its legend at the lower right.
  void draw_accuracies() {
    const double top = kRateTop, bottom = kRateTop + kAccuracyHeight - 30;
    double high = 0;
    for (const auto& [task, curve] : data_.accuracies) {
      for (const Bucket& bucket : curve.buckets()) high = std::max(high, bucket.maximum);
    }
    const Axis share = axis_for(0, high > 0 ? high * 1.1 : 1, bottom, top);
    grid(axis_for(0, 100 * share.high, bottom, top), top, bottom, 4, "accuracy (%)");
    std::size_t index = 0;
    for (const auto& [task, curve] : data_.accuracies) {
      const char* color = evaluation_color(index);
      draw_marked(curve, share, color);
      const double y = bottom - 8 - 14 * static_cast<double>(data_.accuracies.size() - 1 - index++);
      line(right_ - 230, y - 4, right_ - 204, y - 4, color);
      text(right_ - 196, y, "start",
           fmt::format("{} {:.1f} %", escaped(task), curve.buckets().empty() ? 0 : 100 * curve.buckets().back().mean),
           12, "#374151");
    }
  }

  void draw_marked(const DecimatedCurve& curve, const Axis& vertical, const char* color) {
    std::vector<std::pair<double, double>> places;
    for (const Bucket& bucket : curve.buckets()) places.emplace_back(step_(bucket.x), vertical(bucket.mean));
    if (places.size() > 1) polyline(places, color, 1);
    if (places.size() > 200) return;
    for (const auto& [x, y] : places) circle(x, y, color, 3.5);
  }

  static const char* evaluation_color(std::size_t index) {
    return kEvaluationColors[index % std::size(kEvaluationColors)];
  }

  void draw_rate() {
    double high = 0;
    for (const Bucket& bucket : data_.learning_rate.buckets()) high = std::max(high, bucket.maximum);
    const Axis rate = axis_for(0, high > 0 ? high * 1.1 : 1, kRateBottom + lower_, kRateTop + lower_);
    grid(rate, kRateTop + lower_, kRateBottom + lower_, 4, "learning rate");
    std::vector<std::pair<double, double>> places;
    for (const Bucket& bucket : data_.learning_rate.buckets()) places.emplace_back(step_(bucket.x), rate(bucket.mean));
    polyline(places, kRateColor, 1.5);
  }

  void step_labels() {
    const double bottom = lower_ + (data_.learning_rate.buckets().empty() ? kLossBottom : kRateBottom);
    for (const double tick : nice_ticks(step_.low, step_.high, 9)) {
      text(step_(tick), bottom + 18, "middle", tick_label(tick), 12, "#374151");
    }
    text((kLeft + right_) / 2, bottom + 42, "middle", "step", 13, "#111827");
  }

  /// At the upper right, which a falling curve leaves free.
  void legend() {
    double y = kLossTop + 20;
    const double x = right_ - 230;
    const auto entry = [&](const std::string& words, const char* color, double width, bool mark) {
      line(x, y - 4, x + 26, y - 4, color, width);
      if (mark) circle(x + 13, y - 4, color, 3.5);
      text(x + 34, y, "start", words, 12, "#374151");
      y += 18;
    };
    if (!smooth_.empty()) {
      const std::int64_t steps = data_.steps_per_line();
      const std::string training =
          steps == 1 ? "training, every step" : fmt::format("training, mean of {} steps", steps);
      entry(training, smooths() ? kRawColor : kSmoothColor, smooths() ? 1 : 2, false);
      const std::int64_t window =
          steps * data_.train_loss.points_per_bucket() * (2 * smoothing_reach(data_.train_loss.buckets().size()) + 1);
      if (smooths()) entry(fmt::format("training, mean of about {} steps", window), kSmoothColor, 2, false);
    }
    std::size_t index = 0;
    for (const auto& [split, curve] : data_.evaluations) entry(escaped(split), evaluation_color(index++), 1, true);
  }

  /// Whether there are points enough for a smoothed curve to be another one.
  bool smooths() const { return smoothing_reach(data_.train_loss.buckets().size()) > 0; }

  const PlotData& data_;
  std::string title_;
  std::vector<double> smooth_;
  bool two_units_;
  double right_;
  double lower_;  // how far the panel of accuracies moves those below it
  bool empty_ = true;
  Axis loss_, evaluation_, step_;
  std::string out_;
};

}  // namespace

std::string draw_loss_plot(const PlotData& data, const std::string& title) {
  return LossPicture(data, title).draw();
}

LossPlot::LossPlot(std::string folder, std::string title, const PlotData& data, Log& log)
    : path_(std::move(folder) + "/loss.svg"), title_(std::move(title)), data_(data), log_(log) {}

void LossPlot::redraw() {
  try {
    replace_file(path_, draw_loss_plot(data_, title_));
  } catch (const Error& error) {
    if (!warned_) log_.warning("the loss plot was not redrawn: {}", error.what());
    warned_ = true;
  }
}

}  // namespace megatron
