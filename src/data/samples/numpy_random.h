// NumpyRandom: the draws and shuffles of numpy.random.RandomState(seed), bit by bit.
//
// numpy promises that this generator never changes. The engine is std::mt19937; only how its draws become a number in
// an interval or of a distribution is numpy's own, and the standard library leaves that open.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <utility>

namespace megatron {

class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed) : engine_(seed) {}

  /// Uniform in [0, largest]: draws under the smallest mask that covers it, drawn again while too large. An interval of
  /// one number costs no draw; one beyond 32 bits takes two draws at a time, the high half first.
  std::uint64_t up_to(std::uint64_t largest) {
    if (largest == 0) return 0;
    std::uint64_t mask = largest;
    for (const int shift : {1, 2, 4, 8, 16, 32}) mask |= mask >> shift;
    while (true) {
      const std::uint64_t high = largest > 0xFFFFFFFF ? std::uint64_t{engine_()} << 32 : 0;
      const std::uint64_t value = (high | engine_()) & mask;
      if (value <= largest) return value;
    }
  }

  /// RandomState.random_sample: in [0, 1), 53 bits of two draws.
  double random() {
    const std::uint64_t high = engine_() >> 5, low = engine_() >> 6;
    return static_cast<double>(high << 26 | low) / 9007199254740992.0;
  }

  /// RandomState.geometric of a probability below 1/3. numpy draws larger ones in another way.
  std::uint64_t geometric(double probability) {
    return static_cast<std::uint64_t>(std::ceil(std::log1p(-random()) / std::log(1.0 - probability)));
  }

  /// RandomState.choice of one index, with these probabilities.
  std::size_t choice(std::span<const double> probabilities) {
    const double total = std::accumulate(probabilities.begin(), probabilities.end(), 0.0), value = random();
    double sum = 0;
    for (std::size_t i = 0; i + 1 < probabilities.size(); ++i) {
      sum += probabilities[i];
      if (value < sum / total) return i;
    }
    return probabilities.size() - 1;
  }

  /// RandomState.shuffle of a one-dimensional array or a list.
  template <class T>
  void shuffle(std::span<T> values) {
    for (std::uint64_t i = values.size(); i-- > 1;) std::swap(values[i], values[up_to(i)]);
  }

 private:
  std::mt19937 engine_;
};

}  // namespace megatron
