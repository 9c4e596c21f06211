// The backend that a test program tests: which one decides the file it is linked with. Its memory can be read and
// written by the host too, and its verbs are complete when their call returns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"

namespace megatron::test {

/// One for each rank that is a thread. Ends the test program, visibly skipped, where the machine lacks it.
Backend make_test_backend();

#ifdef MEGATRON_TEST_MEMORY
// For a backend that cannot work on just any memory.
void* allocate_for_test(std::size_t bytes);
void free_for_test(void* memory) noexcept;

template <class T>
struct TestAllocator {
  using value_type = T;
  TestAllocator() = default;
  template <class Other>
  TestAllocator(const TestAllocator<Other>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(allocate_for_test(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t) noexcept { free_for_test(memory); }
  bool operator==(const TestAllocator&) const { return true; }
};

template <class T>
using TestVector = std::vector<T, TestAllocator<T>>;

template <class T>
bool operator==(const TestVector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}
#else
template <class T>
using TestVector = std::vector<T>;  ///< elements that the backend under test can work on
#endif

}  // namespace megatron::test
