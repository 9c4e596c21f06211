// MemoryLimit: as long as it lives, the process gets only so much more address space.
//
// Under a sanitizer, which ends the program where memory does, tests must leave it alone: MEGATRON_TEST_SANITIZED.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "support/catch.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEGATRON_TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MEGATRON_TEST_SANITIZED
#endif
#endif

namespace megatron::test {

class MemoryLimit {
 public:
  explicit MemoryLimit(std::uint64_t more_bytes) {
    std::uint64_t pages = 0;
    REQUIRE(std::ifstream("/proc/self/statm") >> pages);
    REQUIRE(::getrlimit(RLIMIT_AS, &old_) == 0);
    const rlimit small{pages * static_cast<std::uint64_t>(::getpagesize()) + more_bytes, old_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_AS, &small) == 0);
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &old_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit old_{};
};

}  // namespace megatron::test
