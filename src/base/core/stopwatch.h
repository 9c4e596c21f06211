// Stopwatch pieces for benchmarks: seconds by two clocks, and medians of them. Knows nothing of what is timed.
#pragma once

#include <vector>

namespace megatron {

/// Seconds by the clock on the wall, and those for which the calling thread had a core. On an idle machine the same.
struct Seconds {
  double wall = 0, cpu = 0;

  static Seconds now();
  Seconds operator-(Seconds other) const { return {wall - other.wall, cpu - other.cpu}; }
  Seconds operator+(Seconds other) const { return {wall + other.wall, cpu + other.cpu}; }
};

template <class Body>
Seconds time_of(const Body& body) {
  const Seconds start = Seconds::now();
  body();
  return Seconds::now() - start;
}

/// The middle one, by each clock; of an even number the upper of the two. At least one sample.
double median(std::vector<double> samples);
Seconds median(const std::vector<Seconds>& samples);

}  // namespace megatron
