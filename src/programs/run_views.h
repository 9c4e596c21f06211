// Options of megatron_train that look at runs: --watch, --report and --tensorboard. They need neither MPI nor an input
// file, and change nothing of a run but the files that they are asked for.
#pragma once

#include <string>
#include <vector>

#include "base/system/durable_file.h"
#include "programs/command_line.h"

namespace megatron {

struct RunViews {
  std::string watch, tensorboard;
  OutputFile output{"--output", ""};  ///< for --report
  std::vector<std::string> reports;

  bool any() const { return !watch.empty() || !tensorboard.empty() || !reports.empty(); }
};

void add_run_views(boost::program_options::options_description& options, RunViews& views);
/// Error(configuration) unless at most one is asked for, and then without an input file (`input`).
void check_run_views(const RunViews& views, const std::string& input);
/// Does what is asked for, and returns the exit code.
int show_runs(const RunViews& views);

}  // namespace megatron
