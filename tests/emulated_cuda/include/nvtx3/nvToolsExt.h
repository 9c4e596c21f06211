// Stands in for NVIDIA's header of this name: ranges are kept for a test to look at.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace emulated_cuda {
struct SeenRanges {
  std::mutex mutex;
  std::set<std::string> paths;  ///< "forward/layer 0/matmul": every range with those that it was in
  int open = 0;
};
inline SeenRanges& seen_ranges() {
  static SeenRanges seen;
  return seen;
}
inline thread_local std::vector<std::string> open_ranges;
}  // namespace emulated_cuda

inline int nvtxRangePushA(const char* name) {
  using namespace emulated_cuda;
  open_ranges.push_back(open_ranges.empty() ? name : open_ranges.back() + "/" + name);
  const std::lock_guard lock(seen_ranges().mutex);
  seen_ranges().paths.insert(open_ranges.back());
  ++seen_ranges().open;
  return 0;
}
inline int nvtxRangePop() {
  using namespace emulated_cuda;
  open_ranges.pop_back();
  const std::lock_guard lock(seen_ranges().mutex);
  --seen_ranges().open;
  return 0;
}
