// Measured rates of a machine, as tables by size: what megatron_bench --hardware writes and clocks read in place of
// formulas. Values between the measured sizes lie on a straight line in the logarithms of both.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace megatron {

/// A rate by N sizes. Between measured sizes each of the surrounding corners that was measured counts by its nearness;
/// past the ends the nearest measured size counts.
template <std::size_t N>
class RateTable {
 public:
  using Sizes = std::array<double, N>;

  void set(const Sizes& sizes, double rate) {
    rows_[sizes] = rate;
    for (std::size_t i = 0; i < N; ++i) {
      const auto at = std::lower_bound(axes_[i].begin(), axes_[i].end(), sizes[i]);
      if (at == axes_[i].end() || *at != sizes[i]) axes_[i].insert(at, sizes[i]);
    }
  }
  bool empty() const { return rows_.empty(); }
  const std::map<Sizes, double>& rows() const { return rows_; }
  double best() const {  ///< 0: it is empty
    double best = 0;
    for (const auto& [sizes, rate] : rows_) best = std::max(best, rate);
    return best;
  }

  double at(const Sizes& sizes) const {
    std::array<Bracket, N> brackets;
    for (std::size_t i = 0; i < N; ++i) brackets[i] = bracket(axes_[i], sizes[i]);
    double sum = 0, weights = 0;
    for (std::size_t corner = 0; corner < std::size_t{1} << N; ++corner) {
      Sizes known;
      double weight = 1;
      for (std::size_t i = 0; i < N; ++i) {
        const bool upper = (corner >> i & 1) != 0;
        known[i] = upper ? brackets[i].upper : brackets[i].lower;
        weight *= upper ? brackets[i].share : 1 - brackets[i].share;
      }
      const auto found = weight > 0 ? rows_.find(known) : rows_.end();
      if (found == rows_.end()) continue;
      sum += weight * std::log(found->second);
      weights += weight;
    }
    return weights > 0 ? std::exp(sum / weights) : nearest(sizes);
  }

 private:
  struct Bracket {
    double lower = 0, upper = 0, share = 0;  ///< share: weight of the upper one
  };
  static Bracket bracket(const std::vector<double>& axis, double size) {
    const auto above = std::upper_bound(axis.begin(), axis.end(), size);
    if (above == axis.begin()) return {axis.front(), axis.front(), 0};
    const double lower = *(above - 1);
    if (above == axis.end()) return {lower, lower, 0};
    return {lower, *above, std::log(size / lower) / std::log(*above / lower)};
  }
  double nearest(const Sizes& sizes) const {
    double least = INFINITY, rate = 0;
    for (const auto& [known, value] : rows_) {
      double distance = 0;
      for (std::size_t i = 0; i < N; ++i) distance += std::pow(std::log(sizes[i] / known[i]), 2);
      if (distance < least) {
        least = distance;
        rate = value;
      }
    }
    return rate;
  }

  std::map<Sizes, double> rows_;
  std::array<std::vector<double>, N> axes_;
};

/// Seconds by bytes. More bytes than were measured take longer in proportion.
class SecondsByBytes {
 public:
  void set(double bytes, double seconds) { points_[bytes] = seconds; }
  bool empty() const { return points_.empty(); }
  const std::map<double, double>& points() const { return points_; }
  /// For messages: fewer bytes than were measured take as long as the fewest.
  double at(double bytes) const;
  /// For operations: fewer bytes take less in proportion.
  double in_proportion(double bytes) const;

 private:
  std::map<double, double> points_;
};

/// By the side of the transposes: y = x · weightᵀ, dx = dy · weight, dweight += dyᵀ · x.
enum class ProductKind { forward, input_gradient, weight_gradient };
inline constexpr std::size_t kProductKinds = 3;

/// Attention's passes, and those that draw its dropout.
enum class AttentionKind { forward, backward, forward_drawn, backward_drawn };
inline constexpr std::size_t kAttentionKinds = 4;

/// Rates of one rank that computes in one type, while the other ranks of its node do the same.
struct MeasuredRates {
  std::array<RateTable<3>, kProductKinds> products;           ///< FLOP/s by rows, columns and inner dimension
  std::array<RateTable<2>, kAttentionKinds> attention;        ///< FLOP/s by length and head size
  std::map<std::string, SecondsByBytes, std::less<>> others;  ///< by operation and what it is of (Work)

  /// Rates of this kind of product, or forward's where only those were measured.
  const RateTable<3>& of(ProductKind kind) const {
    const RateTable<3>& own = products[static_cast<std::size_t>(kind)];
    return own.empty() ? products.front() : own;
  }
  const RateTable<2>& of(AttentionKind kind) const { return attention[static_cast<std::size_t>(kind)]; }
  double best_product() const {  ///< 0: none was measured
    double best = 0;
    for (const RateTable<3>& kind : products) best = std::max(best, kind.best());
    return best;
  }
};

/// Between the ranks of a node: collectives by their name and number of ranks; messages.
struct MeasuredLinks {
  std::map<std::string, std::map<int, SecondsByBytes>, std::less<>> collectives;
  SecondsByBytes messages;
};

}  // namespace megatron
