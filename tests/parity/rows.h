// The table of the parity test: every option alone, and combinations of them. A row reads like an input file.
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.h"

namespace megatron::test {

/// One run, as settings over the input of rows.cpp, each "table.key=value" as --set takes it. It is judged against one
/// rank with `trains` alone, by the promises of design section 5: fp32 to rounding, 16-bit compute by its bands; and
/// against itself, bit for bit.
struct Row {
  std::string name;
  int tensor, data, pipeline;
  std::vector<std::string> how;     ///< options: must not change what is learned
  std::vector<std::string> trains;  ///< options that decide what is learned: the model, the batch, the optimizer's rule
  std::string same_as;              ///< another row's name: the same numbers to the last bit
};

/// The configuration as a run of the row would have it: through the schema and its rules, resolved for its ranks.
/// Throws Error(configuration) where training would refuse it.
Config config_of(const Row& row);

std::vector<Row> parity_rows();

}  // namespace megatron::test
