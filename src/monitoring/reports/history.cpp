#include "monitoring/reports/history.h"

#include "base/system/record_file.h"
#include "monitoring/metrics/json_fields.h"
#include "monitoring/metrics/metrics.h"

namespace megatron {

namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostPrograms = 200, kMostRows = 32;
constexpr std::size_t kLongestKeptConfig = 32 * 1024;          // a line of the file has at most 1 MiB
constexpr std::uint64_t kMostBytes = std::uint64_t{32} << 20;  // enough for all of these
constexpr const char* kFile = "/history.jsonl";

ordered_json json_of(const std::vector<std::pair<std::string, Spread>>& rows) {
  ordered_json list = ordered_json::array();
  for (const auto& [name, row] : rows) {
    list.push_back({{"name", name}, {"min", row.least}, {"average", row.mean}, {"max", row.most}});
  }
  return list;
}

std::string line_of(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::vector<std::pair<std::string, Spread>> rows_of(const nlohmann::json& object, const char* name) {
  std::vector<std::pair<std::string, Spread>> rows;
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array()) return rows;
  for (const nlohmann::json& row : *found) {
    if (!row.is_object() || rows.size() == kMostRows) continue;
    rows.emplace_back(text_or(row, "name", "?"),
                      Spread{number_or(row, "min", 0), number_or(row, "average", 0), number_or(row, "max", 0)});
  }
  return rows;
}

std::int64_t whole(const nlohmann::json& object, const char* name) {
  const double value = number_or(object, name, 0);
  return value > -9e15 && value < 9e15 ? static_cast<std::int64_t>(value) : 0;
}

ProgramStart start_of(const nlohmann::json& line) {
  return {.time = number_or(line, "time", 0),
          .version = text_or(line, "version", ""),
          .step = whole(line, "step"),
          .ranks = whole(line, "ranks"),
          .hosts = whole(line, "hosts"),
          .host = text_or(line, "host", ""),
          .device = text_or(line, "device", ""),
          .transport = text_or(line, "transport", ""),
          .job = text_or(line, "job", ""),
          .threads = whole(line, "threads"),
          .config = text_or(line, "config", "")};
}

ProgramEnd end_of(const nlohmann::json& line) {
  return {.time = number_or(line, "time", 0),
          .step = whole(line, "step"),
          .skipped = whole(line, "skipped"),
          .how = text_or(line, "how", ""),
          .seconds = rows_of(line, "seconds"),
          .bytes = rows_of(line, "bytes")};
}

}  // namespace

std::string history_line(const ProgramStart& start) {
  return line_of({{"kind", "start"},
                  {"time", start.time},
                  {"version", start.version},
                  {"step", start.step},
                  {"ranks", start.ranks},
                  {"hosts", start.hosts},
                  {"host", start.host},
                  {"device", start.device},
                  {"transport", start.transport},
                  {"threads", start.threads},
                  {"job", start.job},
                  {"config", start.config.size() > kLongestKeptConfig ? "" : start.config}});
}

std::string history_line(const ProgramEnd& end) {
  return line_of({{"kind", "end"},
                  {"time", end.time},
                  {"step", end.step},
                  {"how", end.how},
                  {"skipped", end.skipped},
                  {"seconds", json_of(end.seconds)},
                  {"bytes", json_of(end.bytes)}});
}

void add_to_history(const std::string& directory, const std::string& line, Log& log) {
  RecordFile(directory + kFile, log, "report.html will lack it").append(line + '\n');
}

std::vector<PastProgram> read_history(const std::string& directory, std::int64_t& unreadable) {
  std::vector<PastProgram> programs;
  const auto add = [&](const nlohmann::json& line, std::string_view) {
    const std::string kind = text_or(line, "kind", "");
    if (kind == "start") {
      if (programs.size() == kMostPrograms) programs.erase(programs.begin());
      programs.push_back({start_of(line), std::nullopt});
    } else if (kind == "end" && !programs.empty()) {
      programs.back().end = end_of(line);
    }
  };
  unreadable += visit_metrics(directory + kFile, add, kMostBytes);
  return programs;
}

}  // namespace megatron
