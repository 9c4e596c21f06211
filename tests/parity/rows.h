// The table of the parity test: every lever alone, and combinations of them. A row reads like an input file.
#pragma once

#include <string>
#include <vector>

namespace megatron::test {

/// One run, as settings over kInput (rows.cpp), each "table.key=value" as --set takes it. It is judged against one rank
/// with `trains` alone, by the promises of design section 5: fp32 to rounding, 16-bit compute by its bands; and against
/// itself, bit for bit.
struct Row {
  std::string name;
  int tensor, data, pipeline;
  std::vector<std::string> how;     ///< levers: must not change what is learned
  std::vector<std::string> trains;  ///< what is learned: the model, the batch, the optimizer's rule
  std::string same_as;              ///< another row's name: the same numbers to the last bit
};

extern const char* const kInput;

std::vector<Row> parity_rows();

}  // namespace megatron::test
