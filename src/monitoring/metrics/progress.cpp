#include "monitoring/metrics/progress.h"

#include <algorithm>
#include <cmath>

namespace megatron {

namespace {

int step_width(std::int64_t total_steps) {
  return std::max(9, static_cast<int>(2 * fmt::formatted_size("{}", total_steps) + 1));  // "12/5000"
}

/// Plain digits while they fit the column, else an exponent.
std::string fitting(double value, int decimals, int width) {
  if (std::isnan(value)) return "nan";  // whatever its sign
  std::string text = fmt::format("{:.{}f}", value, decimals);
  for (int digits = 2; digits >= 0 && static_cast<int>(text.size()) > width; --digits) {
    text = fmt::format("{:.{}e}", value, digits);
  }
  return text;
}

}  // namespace

std::string losses_by_name(const std::vector<std::pair<std::string, double>>& losses) {
  std::string text;
  if (losses.size() < 2) return text;
  for (const auto& [name, value] : losses) text += fmt::format("  {} {}", name, fitting(value, 4, 9));
  return text;
}

std::string progress_header(std::int64_t total_steps) {
  return fmt::format("{:>{}} {:>9} {:>9} {:>9} {:>8} {:>10} {:>9}", "step", step_width(total_steps), "loss",
                     "grad norm", "lr", "s/step", "tokens/s", "ETA");
}

std::string progress_line(const ProgressLine& line, std::int64_t total_steps) {
  const std::string scale = line.loss_scale != 1 ? fmt::format("  loss scale {}", line.loss_scale) : "";
  return fmt::format("{:>{}} {:>9} {:>9} {:>9.2e} {:>8} {:>10} {:>9}{}{}{}",
                     fmt::format("{}/{}", line.step, total_steps), step_width(total_steps), fitting(line.loss, 4, 9),
                     fitting(line.grad_norm, 3, 9), line.learning_rate, fitting(line.step_seconds, 3, 8),
                     fitting(line.tokens_per_second, 0, 10), format_duration(line.remaining_seconds),
                     losses_by_name(line.losses), scale, line.skipped ? "  skipped" : "");
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds >= 10000.0 * 86400) return "-";
  const std::int64_t total = std::llround(seconds);
  const std::int64_t days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60;
  if (days > 0) return fmt::format("{}d {:02}:{:02}", days, hours, minutes);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

void Progress::print(ProgressLine line) {
  if (lines_++ % kLinesPerHeader == 0) log_.info(progress_header(total_steps_));
  token_seconds_.add(1 / line.tokens_per_second);
  line.remaining_seconds = token_seconds_.value() * line.remaining_tokens;
  log_.info(progress_line(line, total_steps_));
}

}  // namespace megatron
