#include "planning/layout_search/calibration.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace megatron::test {

namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

constexpr int kIterations = 25, kLeftOutIterations = 6, kTries = 8;
constexpr double kConverged = 1e-7;  // least gain in the sum of squares
constexpr double kStep = 1e-3;       // in a logarithm, for derivatives

// Gaussian elimination with pivots; the matrix is positive definite.
Vector solve(Matrix a, Vector b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t j = i + 1; j < n; ++j) {
      if (std::abs(a[j][i]) > std::abs(a[pivot][i])) pivot = j;
    }
    std::swap(a[i], a[pivot]);
    std::swap(b[i], b[pivot]);
    for (std::size_t j = i + 1; j < n; ++j) {
      const double factor = a[j][i] / a[i][i];
      for (std::size_t k = i; k < n; ++k) a[j][k] -= factor * a[i][k];
      b[j] -= factor * b[i];
    }
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = i + 1; j < n; ++j) b[i] -= a[i][j] * b[j];
    b[i] /= a[i][i];
  }
  return b;
}

class Fitter {
 public:
  Fitter(const std::vector<FittedConstant>& constants, int rows, const std::function<double(int, const Vector&)>& ratio)
      : constants_(constants), rows_(rows), ratio_(ratio) {}

  CalibrationFit run() {
    Vector logs;
    for (const FittedConstant& constant : constants_) logs.push_back(std::log(constant.start));
    Matrix derivatives;
    State state{logs, 1e-3, cost(logs, -1)};
    for (int i = 0; i < kIterations; ++i) {
      derivatives = all_derivatives(state.logs);
      if (!improve(state, derivatives, -1)) break;
    }
    CalibrationFit fit{.constants = values(state.logs)};
    for (int row = 0; row < rows_; ++row) fit.in_sample.push_back(std::expm1(error(row, state.logs)));
    for (int row = 0; row < rows_; ++row) {
      State without{state.logs, 1e-3, cost(state.logs, row)};
      for (int i = 0; i < kLeftOutIterations && improve(without, derivatives, row); ++i) {
      }
      fit.left_out.push_back(std::expm1(error(row, without.logs)));
    }
    return fit;
  }

 private:
  static Vector values(const Vector& logs) {
    Vector values;
    for (const double log : logs) values.push_back(std::exp(log));
    return values;
  }
  double error(int row, const Vector& logs) const { return std::log(ratio_(row, values(logs))); }

  Matrix all_derivatives(const Vector& logs) const {
    Matrix derivatives(static_cast<std::size_t>(rows_), Vector(logs.size()));
    for (int row = 0; row < rows_; ++row) {
      const double here = error(row, logs);
      for (std::size_t i = 0; i < logs.size(); ++i) {
        Vector moved = logs;
        moved[i] -= kStep;
        derivatives[static_cast<std::size_t>(row)][i] = (here - error(row, moved)) / kStep;
      }
    }
    return derivatives;
  }

  struct State {
    Vector logs;
    double damping, cost;
  };

  double pull(std::size_t i, const Vector& logs) const {
    return constants_[i].weight * (logs[i] - std::log(constants_[i].start));
  }

  double cost(const Vector& logs, int left_out) const {
    double sum = 0;
    for (int row = 0; row < rows_; ++row) {
      if (row != left_out) sum += error(row, logs) * error(row, logs);
    }
    for (std::size_t i = 0; i < logs.size(); ++i) sum += pull(i, logs) * pull(i, logs);
    return sum;
  }

  // One step of least squares without row `left_out`, within the constants' bounds, damped until it is one down
  // (Levenberg 1944, Marquardt 1963). False if there is no more to gain.
  bool improve(State& state, const Matrix& derivatives, int left_out) const {
    const std::size_t n = state.logs.size();
    Matrix normal(n, Vector(n));
    Vector right(n);
    for (int row = 0; row < rows_; ++row) {
      if (row == left_out) continue;
      const double off = error(row, state.logs);
      const Vector& slope = derivatives[static_cast<std::size_t>(row)];
      for (std::size_t i = 0; i < n; ++i) {
        right[i] -= slope[i] * off;
        for (std::size_t j = 0; j < n; ++j) normal[i][j] += slope[i] * slope[j];
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      normal[i][i] += constants_[i].weight * constants_[i].weight + 1e-9;
      right[i] -= constants_[i].weight * pull(i, state.logs);
    }
    for (int i = 0; i < kTries; ++i) {
      const Vector moved = step(state, normal, right);
      const double now = cost(moved, left_out);
      if (now < state.cost) {
        const double gained = state.cost - now;
        state = {moved, std::max(state.damping / 5, 1e-9), now};
        return gained > kConverged;
      }
      state.damping *= 6;
    }
    return false;
  }

  // Constants at a bound that the step would leave it by are held there, and the others move as if they were known.
  Vector step(const State& state, const Matrix& normal, const Vector& right) const {
    const std::size_t n = normal.size();
    std::vector<bool> held(n, false);
    for (bool again = true; again;) {
      again = false;
      Matrix a = normal;
      Vector b = right;
      for (std::size_t i = 0; i < n; ++i) {
        a[i][i] *= 1 + state.damping;
        for (std::size_t j = 0; held[i] && j < n; ++j) a[i][j] = a[j][i] = i == j ? 1 : 0;
        if (held[i]) b[i] = 0;
      }
      const Vector by = solve(std::move(a), std::move(b));
      Vector moved = state.logs;
      for (std::size_t i = 0; i < n; ++i) {
        const double least = std::log(constants_[i].minimum), most = std::log(constants_[i].maximum);
        const bool leaves = (by[i] < 0 && moved[i] <= least) || (by[i] > 0 && moved[i] >= most);
        again = again || (leaves && !held[i]);
        held[i] = held[i] || leaves;
        moved[i] = std::clamp(moved[i] + by[i], least, most);
      }
      if (!again) return moved;
    }
    return state.logs;
  }

  const std::vector<FittedConstant>& constants_;
  int rows_;
  const std::function<double(int, const Vector&)>& ratio_;
};

}  // namespace

CalibrationFit fit_constants(const std::vector<FittedConstant>& constants, int rows,
                             const std::function<double(int row, const std::vector<double>& constants)>& ratio) {
  return Fitter(constants, rows, ratio).run();
}

}  // namespace megatron::test
