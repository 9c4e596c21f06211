#include "base/core/stopwatch.h"

#include <algorithm>
#include <ctime>

namespace megatron {

namespace {
double read(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}
}  // namespace

Seconds Seconds::now() {
  return {read(CLOCK_MONOTONIC), read(CLOCK_THREAD_CPUTIME_ID)};
}

double median(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

Seconds median(const std::vector<Seconds>& samples) {
  std::vector<double> wall, cpu;
  for (const Seconds& sample : samples) {
    wall.push_back(sample.wall);
    cpu.push_back(sample.cpu);
  }
  return {median(std::move(wall)), median(std::move(cpu))};
}

}  // namespace megatron
