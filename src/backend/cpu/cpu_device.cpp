#include "backend/cpu/cpu_device.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/backends.h"
#include "base/system/memory_usage.h"

namespace megatron {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHugeFrom = 2 * kHugePage;  // rounding up to whole huge pages must not waste much

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::string read_processor_description() {
  std::ifstream file("/proc/cpuinfo");
  std::string model = "CPU", line;
  int cores = 0;
  while (std::getline(file, line)) {
    if (line.starts_with("processor")) ++cores;
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) model = line.substr(colon + 2);
  }
  while (!model.empty() && model.back() == ' ') model.pop_back();
  if (cores == 0) return model;
  return fmt::format("{}, {} {}", model, cores, cores == 1 ? "core" : "cores");
}

/// Whole huge pages from the kernel itself, nullptr if there are none. malloc would cut them out of its heap where it
/// finds room for their alignment, and the program's resident memory would depend on chance.
void* map_huge_pages(std::size_t size) {
  void* const room = ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  const auto first = reinterpret_cast<std::uintptr_t>(room), aligned = round_up(first, kHugePage);
  char* const memory = static_cast<char*>(room) + (aligned - first);
  if (aligned > first) ::munmap(room, aligned - first);
  if (first + kHugePage > aligned) ::munmap(memory + size, first + kHugePage - aligned);
  // Only advice: a kernel without huge pages refuses it and the memory is as good.
  (void)::madvise(memory, size, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

CpuDevice::CpuDevice() : description_(read_processor_description()) {}

void* CpuDevice::allocate(std::size_t bytes) {
  void* memory = nullptr;
  if (bytes <= PTRDIFF_MAX - 2 * kHugePage) {
    memory = bytes >= kHugeFrom ? map_huge_pages(round_up(bytes, kHugePage))
                                : std::aligned_alloc(kAlignment, round_up(bytes == 0 ? 1 : bytes, kAlignment));
  }
  verify(memory != nullptr, ErrorKind::configuration,
         "out of host memory: could not get {} bytes ({:.2f} GiB); use fewer ranks on this node, a smaller "
         "train.micro_batch_size or more tensor or pipeline ranks (--dry-run predicts the memory)",
         bytes, static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
  return memory;
}

void CpuDevice::deallocate(void* memory, std::size_t bytes) noexcept {
  if (memory != nullptr && bytes >= kHugeFrom) {
    ::munmap(memory, round_up(bytes, kHugePage));
  } else {
    std::free(memory);
  }
}

std::optional<std::size_t> CpuDevice::free_bytes() const {
  std::optional<std::size_t> free = free_memory_bytes();
  if (free) *free += free_swap_bytes();  // memory that others hold and do not use can go there
  return free;
}

void CpuDevice::copy_to_device(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void CpuDevice::copy_to_host(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

void CpuDevice::copy_within(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

Backend make_cpu_backend(int threads, Native16Bit native_16bit) {
  auto device = std::make_unique<CpuDevice>();
  auto ops = std::make_unique<CpuOps>(*device, threads, choose_half_products(native_16bit, processor_features()));
  return {std::move(device), std::move(ops)};
}

}  // namespace megatron
