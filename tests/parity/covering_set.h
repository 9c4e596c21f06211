// Options in combination, on 8 ranks: too many for all of them, so that every pair of two options' values stands in at
// least one row. What cannot be combined is what the configuration's own rules refuse.
#pragma once

#include "parity/rows.h"

namespace megatron::test {

struct CoveringSet {
  std::vector<Row> rows;
  std::vector<std::string> impossible;  ///< pairs that the rules refuse whatever the other options are: "a + b"
};

/// The same at every call. A new option, or a new value of one, is a line in covering_set.cpp.
const CoveringSet& covering_set();

}  // namespace megatron::test
