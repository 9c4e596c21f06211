// ProgressLine: how far a program is with its input, one line on standard error every few seconds.
#pragma once

#include <chrono>
#include <cstdint>

namespace megatron {

class ProgressLine {
 public:
  /// `active`: on the rank that shows it. `total`: bytes of input, 0 if they are told later.
  ProgressLine(bool active, std::uint64_t total) : active_(active), total_(total) {}

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  void set_total(std::uint64_t total) { total_ = total; }
  void show(std::uint64_t bytes);

 private:
  bool active_;
  std::uint64_t total_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double last_ = 0;
};

}  // namespace megatron
