#include "monitoring/metrics/tensorboard.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/core/error.h"
#include "base/system/host_name.h"
#include "base/text/text.h"
#include "checkpoint/store/files.h"
#include "monitoring/metrics/json_fields.h"
#include "monitoring/metrics/metrics.h"

namespace megatron {

namespace {

constexpr std::size_t kMostElements = 64;
constexpr std::int64_t kLongestConfig = 1 << 20;
constexpr std::string_view kNamePrefix = "events.out.tfevents.";

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void add_scalars(const std::string& tag, const nlohmann::json& value, std::vector<TaggedScalar>& scalars) {
  if (value.is_number()) {
    scalars.emplace_back(tag, value.get<double>());
  } else if (value.is_null()) {
    scalars.emplace_back(tag, std::nan(""));
  } else if (value.is_object()) {
    for (const auto& [name, element] : value.items()) add_scalars(tag + "/" + name, element, scalars);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < std::min(value.size(), kMostElements); ++i) {
      add_scalars(fmt::format("{}/{}", tag, i), value[i], scalars);
    }
  }
}

// Markdown of a text that is shown as it is.
std::string as_code(const std::string& text) {
  std::string code = "    ";
  for (const char c : text) {
    code += c;
    if (c == '\n') code += "    ";
  }
  return code;
}

// Readers take the files of a folder in the order of their names, which begin with a time: not an earlier one than
// another file's, whatever the clock says.
std::string file_name(const std::string& folder) {
  auto seconds = static_cast<long long>(std::time(nullptr));
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(kNamePrefix)) continue;
    const std::string digits = name.substr(kNamePrefix.size(), 10);
    if (digits.size() == 10 && digits.find_first_not_of("0123456789") == digits.npos) {
      seconds = std::max(seconds, std::stoll(digits) + 1);
    }
  }
  return fmt::format("{}/{}{:010}.{}.{}", folder, kNamePrefix, seconds, host_name(), ::getpid());
}

}  // namespace

std::vector<TaggedScalar> scalars_of(const nlohmann::json& line) {
  const std::string kind = text_or(line, "kind", "");
  const std::string group =
      kind == "eval" ? text_or(line, "split", "") : (kind == "task" ? "tasks/" + text_or(line, "name", "") : kind);
  std::vector<TaggedScalar> scalars;
  for (const auto& [name, value] : line.items()) {
    if (name == "step" || name == "time") continue;
    if (name == "losses" && value.size() < 2) continue;  // it is the loss
    add_scalars(group + "/" + name, value, scalars);
  }
  return scalars;
}

TensorBoardEvents::TensorBoardEvents(std::string directory, Log& log, std::string lost)
    : folder_(std::move(directory) + "/tensorboard"), lost_(std::move(lost)), log_(log) {}

void TensorBoardEvents::begin(std::int64_t step, const std::string& config) {
  file_ = std::make_unique<RecordFile>(file_name(folder_), log_, lost_);
  complete_ = true;
  append(start_event(now(), step + 1));
  append(text_event(now(), step, "config", as_code(config)));
}

void TensorBoardEvents::add(const nlohmann::json& line) {
  if (file_ == nullptr) return;
  const std::vector<TaggedScalar> scalars = scalars_of(line);
  const double step = number_or(line, "step", -1);
  if (scalars.empty() || !(step >= 0 && step < 9e18)) return;
  append(scalars_event(number_or(line, "time", now()), static_cast<std::int64_t>(step), scalars));
}

void TensorBoardEvents::append(const std::string& record) {
  ::mkdir(folder_.c_str(), 0777);  // it may vanish, like any file of a run
  complete_ = file_->append(record, version_event(now())) && complete_;
}

std::int64_t rebuild_tensorboard(const std::string& directory, Log& log) {
  const std::string metrics = directory + "/metrics.jsonl", config = directory + "/config.toml";
  verify(file_type(metrics) != FileType::absent, ErrorKind::configuration,
         "{}: no such run: there is no {}; name a run.directory", directory, metrics);
  std::int64_t lines = 0;
  const std::int64_t unreadable = visit_metrics(metrics, [&](const nlohmann::json&, std::string_view) { ++lines; });
  verify(lines > 0 || unreadable == 0, ErrorKind::data, "{}: none of its {} can be read", metrics,
         counted(unreadable, "line"));
  if (unreadable > 0) log.warning("{} of {} cannot be read: left out", counted(unreadable, "line"), metrics);
  TensorBoardEvents events(directory, log, "events are lost");
  events.begin(0, file_type(config) == FileType::absent ? "" : read_text_file(config, kLongestConfig));
  lines = 0;  // there may be more by now
  visit_metrics(metrics, [&](const nlohmann::json& line, std::string_view) {
    events.add(line);
    ++lines;
  });
  verify(events.complete(), ErrorKind::filesystem, "{}/tensorboard is not complete; make room and try again",
         directory);
  return lines;
}

}  // namespace megatron
