#include "support/counted_allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<long> all{0};
thread_local long mine = 0;

void* counted(void* memory) {
  ++all;
  ++mine;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace megatron::test {

long allocations() {
  return all;
}
long allocations_of_mine() {
  return mine;
}

}  // namespace megatron::test

// Those of arrays call these.
void* operator new(std::size_t bytes) {
  return counted(std::malloc(bytes == 0 ? 1 : bytes));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(unit, (bytes + unit) / unit * unit));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
