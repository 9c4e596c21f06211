#include <cstdint>
#include <cstring>
#include <string>

#include "backend/cpu/cpu_device.h"
#include "backend/ops/backends.h"
#include "backend/ops/ops.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("CPU memory is aligned, big blocks to huge pages", "[device]") {
  CpuDevice device;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{65}, std::size_t{100000}}) {
    void* memory = device.allocate(bytes);
    REQUIRE(memory != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0);
    std::memset(memory, 1, bytes);
    device.deallocate(memory, bytes);
  }
  const std::size_t big = (std::size_t{9} << 20) + 13;
  void* memory = device.allocate(big);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % (std::size_t{2} << 20) == 0);
  std::memset(memory, 1, big);
  device.deallocate(memory, big);
}

TEST_CASE("CPU memory that does not exist is an error with its size", "[device]") {
  CpuDevice device;
  try {
    device.allocate(SIZE_MAX);
    FAIL("allocated the address space");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::configuration);
    CHECK(std::string(error.what()).find("18446744073709551615 bytes") != std::string::npos);
  }
#ifndef __SANITIZE_ADDRESS__  // it ends the process instead
  CHECK_THROWS_AS(device.allocate(std::size_t{1} << 60), Error);
#endif
}

TEST_CASE("the CPU backend describes itself and copies", "[device]") {
  const Backend backend = make_cpu_backend();
  REQUIRE(backend.device != nullptr);
  REQUIRE(backend.ops != nullptr);
  CHECK(backend.device->description().find("core") != std::string::npos);
  const int from[3] = {1, 2, 3};
  int there[3] = {}, back[3] = {};
  backend.device->copy_to_device(there, from, sizeof from);
  backend.device->copy_to_host(back, there, sizeof there);
  backend.device->synchronize();
  CHECK(std::memcmp(from, back, sizeof from) == 0);
}

TEST_CASE("on the CPU everything is done when its call returns", "[device]") {
  CpuDevice device;
  CHECK(device.is_host_memory());
  CHECK(device.identity().empty());
  CHECK(device.free_bytes().value_or(0) > 0);
  const Buffer memory(device.pinned(), 64);
  auto* there = reinterpret_cast<int*>(memory.data());
  const int from[3] = {1, 2, 3};
  int back[3] = {};
  CHECK(device.complete(device.start_copy_to_device(there, from, sizeof from, device.mark())));
  device.copy_within(there + 3, there, sizeof from);
  CHECK(device.complete(device.start_copy_to_host(back, there + 3, sizeof back, device.mark())));
  CHECK(std::memcmp(from, back, sizeof from) == 0);
}
