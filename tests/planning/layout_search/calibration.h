// A fit of software efficiencies to published rows: least squares of the errors' logarithms by Gauss and Newton, with a
// weak pull to where the search began, so that what the rows say nothing of stays plausible.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace megatron::test {

/// A constant of the model that is fitted, in its logarithm.
struct FittedConstant {
  std::string name;
  double start = 1, minimum = 0, maximum = 1;
  double weight = 0;  ///< weight of the pull to `start`, against one row's error
};

struct CalibrationFit {
  std::vector<double> constants;
  std::vector<double> in_sample = {};  ///< predicted / published - 1, by row
  std::vector<double> left_out = {};   ///< the same of each row with the constants that the other rows alone give
};

/// `ratio(row, constants)`: predicted / published.
CalibrationFit fit_constants(const std::vector<FittedConstant>& constants, int rows,
                             const std::function<double(int row, const std::vector<double>& constants)>& ratio);

}  // namespace megatron::test
