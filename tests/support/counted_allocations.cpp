#include "support/counted_allocations.h"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<long> all{0};
thread_local long mine = 0;

struct Code {
  std::uintptr_t begin = 0, end = 0;
};

/// Where oneDNN's library lies, if it is one that is loaded.
Code find_onednn() {
  Code code;
  const auto visit = [](dl_phdr_info* library, std::size_t, void* found) {
    if (library->dlpi_name == nullptr || std::strstr(library->dlpi_name, "libdnnl") == nullptr) return 0;
    auto& range = *static_cast<Code*>(found);
    range.begin = library->dlpi_addr;
    for (int i = 0; i < library->dlpi_phnum; ++i) {
      const auto& part = library->dlpi_phdr[i];
      if (part.p_type == PT_LOAD)
        range.end = std::max<std::uintptr_t>(range.end, range.begin + part.p_vaddr + part.p_memsz);
    }
    return 1;
  };
  ::dl_iterate_phdr(visit, &code);
  return code;
}

void* counted(void* memory, const void* caller) {
  static const Code onednn = find_onednn();
  const auto at = reinterpret_cast<std::uintptr_t>(caller);
  if (at < onednn.begin || at >= onednn.end) {
    ++all;
    ++mine;
  }
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

// The operators for arrays call these.
void* operator new(std::size_t bytes) {
  return counted(std::malloc(bytes == 0 ? 1 : bytes), __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(unit, (bytes + unit) / unit * unit), __builtin_return_address(0));
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
