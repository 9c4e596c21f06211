#include "monitor/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "system/durable_file.h"
#include "system/regular_file.h"

namespace megatron {

namespace {

constexpr std::size_t kLongestLine = 64 * 1024;

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Lines of a file, of which at most kLongestLine bytes are kept in memory.
class BoundedLines {
 public:
  explicit BoundedLines(const std::string& path) : file_(path, ErrorKind::filesystem) {}

  /// The next line without its end; false at the end of the file. A longer line comes cut, with `too_long` true.
  bool next(std::string& line, bool& too_long) {
    line.clear();
    too_long = false;
    for (bool any = false;; any = true) {
      if (at_ == block_.size() && !fill()) return any;
      const char c = block_[at_++];
      if (c == '\n') return true;
      if (line.size() < kLongestLine) {
        line += c;
      } else {
        too_long = true;
      }
    }
  }

 private:
  bool fill() {
    block_.resize(std::min<std::uint64_t>(kLongestLine, file_.bytes() - read_));
    file_.read(read_, block_.data(), block_.size());
    read_ += block_.size();
    at_ = 0;
    return !block_.empty();
  }

  RegularFile file_;
  std::uint64_t read_ = 0;  // bytes of the file
  std::string block_;
  std::size_t at_ = 0;
};

std::string members(const std::vector<std::pair<std::string, double>>& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", quoted(name), number(value));
  }
  return text;
}

}  // namespace

double perplexity(double loss) {
  return std::isfinite(loss) ? std::exp(std::min(loss, 20.0)) : loss;
}

std::string metrics_line(const TrainMetrics& metrics) {
  const std::string losses = members(metrics.losses);
  return fmt::format(
      R"({{"kind":"train","step":{},"loss":{},"losses":{{{}}},"grad_norm":{},"learning_rate":{},"samples":{},)"
      R"("tokens":{},"epoch":{},"global_batch_size":{},"step_seconds":{},"tokens_per_second":{},)"
      R"("model_tflops_per_rank":{},"hardware_tflops_per_rank":{},"loss_scale":{},"skipped":{},"time":{}}})",
      metrics.step, number(metrics.loss), losses, number(metrics.grad_norm), number(metrics.learning_rate),
      metrics.samples, metrics.tokens, number(metrics.epoch), metrics.global_batch_size, number(metrics.step_seconds),
      number(metrics.tokens_per_second), number(metrics.model_tflops_per_rank),
      number(metrics.hardware_tflops_per_rank), number(metrics.loss_scale), metrics.skipped, number(metrics.time));
}

std::string metrics_line(const EvaluationMetrics& metrics) {
  const bool several = metrics.losses.size() > 1;
  const std::string losses = several ? fmt::format(R"("losses":{{{}}},)", members(metrics.losses)) : "";
  const double of_perplexity = several ? metrics.losses.front().second : metrics.loss;
  return fmt::format(
      R"({{"kind":"eval","split":{},"step":{},"loss":{},{}"perplexity":{},"samples":{},"tokens":{},"time":{}}})",
      quoted(metrics.split), metrics.step, number(metrics.loss), losses, number(perplexity(of_perplexity)),
      metrics.samples, metrics.tokens, number(metrics.time));
}

std::string metrics_line(const TaskMetrics& metrics) {
  return fmt::format(
      R"({{"kind":"task","name":{},"task":{},"step":{},"examples":{},"targets":{},{},"samples":{},"tokens":{},"time":{}}})",
      quoted(metrics.name), quoted(metrics.task), metrics.step, metrics.examples, metrics.targets,
      members(metrics.measures), metrics.samples, metrics.tokens, number(metrics.time));
}

MetricsWriter::MetricsWriter(std::string path, Log& log) : path_(std::move(path)), log_(log) {}

MetricsWriter::~MetricsWriter() {
  if (file_ >= 0) ::close(file_);
}

void MetricsWriter::write(const TrainMetrics& metrics) {
  append(metrics_line(metrics));
}

void MetricsWriter::write(const EvaluationMetrics& metrics) {
  append(metrics_line(metrics));
}

void MetricsWriter::write(const TaskMetrics& metrics) {
  append(metrics_line(metrics));
}

bool MetricsWriter::ensure_open() {
  struct stat status {};
  if (file_ >= 0 && ::fstat(file_, &status) == 0 && status.st_nlink > 0) return true;
  if (file_ >= 0) ::close(file_);
  file_ = open_for_append(path_);
  return file_ >= 0;
}

void MetricsWriter::append(std::string line) {
  if (!ensure_open()) return warn_once(errno);
  line += '\n';
  struct stat before {};
  const bool known = ::fstat(file_, &before) == 0;
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written < 0 ? errno : ENOSPC;
      // Take a torn line back, so that the next one does not continue it.
      if (known && rest.size() < line.size() && ::ftruncate(file_, before.st_size) != 0) {
        warn_once(errno);
      }
      return warn_once(error);
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

void MetricsWriter::warn_once(int error) {
  if (warned_) return;
  warned_ = true;
  log_.warning("cannot write {}: {}; training continues, lines of the metrics are lost", path_, std::strerror(error));
}

std::int64_t visit_metrics(const std::string& path,
                           const std::function<void(const nlohmann::json&, std::string_view)>& visit) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return 0;
  std::int64_t passed_over = 0;
  BoundedLines lines(path);
  std::string line;
  for (bool too_long = false; lines.next(line, too_long);) {
    // An object of one level of nesting is all that is ever written; deeper ones would only cost the parser's stack.
    const auto depth = std::count(line.begin(), line.end(), '{') + std::count(line.begin(), line.end(), '[');
    const bool readable = !too_long && depth <= 64;
    const auto object = readable ? nlohmann::json::parse(line, nullptr, false) : nlohmann::json();
    if (object.is_object()) {
      visit(object, line);
    } else {
      ++passed_over;
    }
  }
  return passed_over;
}

std::int64_t truncate_metrics(const std::string& path, std::int64_t last_step,
                              const std::vector<std::string>& evaluations_due) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return 0;
  const std::string partial = path + ".partial";
  BoundedLines{path};       // what cannot be read is told before anything is written
  remove_quietly(partial);  // a link, which would be followed
  std::ofstream kept(partial, std::ios::binary | std::ios::trunc);
  std::int64_t dropped = 0;
  const std::int64_t unreadable = visit_metrics(path, [&](const nlohmann::json& object, std::string_view text) {
    const auto step = object.find("step"), split = object.find("split"), name = object.find("name");
    const bool has_step = step != object.end() && step->is_number_integer();
    const bool later = has_step && step->get<std::int64_t>() > last_step;
    std::string evaluated;
    if (split != object.end() && split->is_string()) evaluated = split->get<std::string>();
    if (name != object.end() && name->is_string()) evaluated = kTaskDue + name->get<std::string>();
    const bool due = has_step && *step == last_step &&
                     std::find(evaluations_due.begin(), evaluations_due.end(), evaluated) != evaluations_due.end();
    if (later || due) {
      ++dropped;
    } else {
      kept << text << '\n';
    }
  });
  kept.close();
  if (!kept) {
    remove_quietly(partial);
    fail(ErrorKind::filesystem, "cannot write {}: {}; free some space, or move {} away", partial, std::strerror(errno),
         path);
  }
  sync_path(partial);
  rename_durably(partial, path);
  return dropped + unreadable;
}

}  // namespace megatron
