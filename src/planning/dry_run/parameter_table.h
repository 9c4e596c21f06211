// The parameters of a whole model by name: how each is cut over the ranks of a layout, and how it is trained. All of it
// is from the record that training itself reads (distributed/parallel/parameter.h).
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

struct ParameterRow {
  Parameter record;         ///< the first rank's that holds a part of it; its views have no memory
  std::vector<int> stages;  ///< pipeline stages that hold it, ascending; of a tied one the first counts it
  bool trained = true;      ///< false: a ModelState
  bool one_owner = false;   ///< one of its copies keeps the optimizer's state of it, the others none
};

/// One for each parameter of the model in the order in which a rank that is alone declares them, then one for each
/// ModelState. The configuration must be resolved. Errors: configuration, for a grid too large to list.
std::vector<ParameterRow> parameter_rows(const Config& config);

/// The rows as lines in columns, below headings, with how each is updated; at the end their number, and their elements
/// as a plan counts them (states are not in it).
std::string parameter_table(const Config& config);

}  // namespace megatron
