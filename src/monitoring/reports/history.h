// history.jsonl: a line for every program that has begun to train in a run directory, and one for its end. What
// report.html says of a run beyond its metrics. Nothing is ever removed from it.
//
// Readers take what there is: runs of older versions have no such file, killed programs no last line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/system/log.h"

namespace megatron {

/// Over ranks.
struct Spread {
  double least = 0, mean = 0, most = 0;
};

struct ProgramStart {
  double time = 0;  ///< seconds since 1970
  std::string version = {};
  std::int64_t step = 0;  ///< where it resumed; 0: the beginning
  std::int64_t ranks = 0, hosts = 0;
  std::string host = {};  ///< rank 0's
  std::string device = {}, transport = {}, job = {};
  std::int64_t threads = 0;
  std::string config = {};  ///< as in config.toml
};

struct ProgramEnd {
  double time = 0;
  std::int64_t step = 0, skipped = 0;
  std::string how = {};                                      ///< "complete", "stopped on SIGTERM", ...
  std::vector<std::pair<std::string, Spread>> seconds = {};  ///< by section, as in the table at the end
  std::vector<std::pair<std::string, Spread>> bytes = {};    ///< "predicted", "used", "peak resident", "sent"
};

std::string history_line(const ProgramStart& start);
std::string history_line(const ProgramEnd& end);
/// Appends one of them to `directory`/history.jsonl; what goes wrong is a warning.
void add_to_history(const std::string& directory, const std::string& line, Log& log);

struct PastProgram {
  ProgramStart start;
  std::optional<ProgramEnd> end;
};

/// At most the last 200. Empty where there is no file. `unreadable`: lines that are damaged, added.
std::vector<PastProgram> read_history(const std::string& directory, std::int64_t& unreadable);

}  // namespace megatron
