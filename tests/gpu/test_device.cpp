// Promises of the device's queues, seen from the host: on a GPU, work really is asynchronous.
#include <cstring>
#include <vector>

#include "backend/ops/backends.h"
#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"

using namespace megatron;

namespace {

constexpr std::int64_t kElements = 1 << 17;
constexpr std::size_t kBytes = kElements * sizeof(float);

bool all_are(const Buffer& host, float value) {
  const auto* values = reinterpret_cast<const float*>(host.data());
  for (std::int64_t i = 0; i < kElements; ++i) {
    if (values[i] != value) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("copies out see the operations before their ticket, and none after") {
  Backend backend = make_cuda_backend(0);
  Device& device = *backend.device;
  Buffer memory(device, kBytes);
  const Tensor x = memory.tensor({kElements}, DType::f32);
  std::vector<Buffer> hosts;
  std::vector<Ticket> copies;
  constexpr int rounds = 16;
  for (int i = 0; i < rounds; ++i) hosts.emplace_back(device.pinned(), kBytes);
  for (int i = 0; i < rounds; ++i) {
    backend.ops->fill(x, i);
    copies.push_back(
        device.start_copy_to_host(hosts[static_cast<std::size_t>(i)].data(), x.data(), kBytes, device.mark()));
    device.order_after(copies.back());  // the next round's operation must not overtake the copy
  }
  for (std::size_t i = rounds; i-- > 0;) {
    device.wait(copies[i]);
    CHECK(device.complete(copies[i]));
    CHECK(all_are(hosts[i], static_cast<float>(i)));
  }
}

TEST_CASE("copies in come before the operations that are ordered after them") {
  Backend backend = make_cuda_backend(0);
  Device& device = *backend.device;
  Buffer from(device, kBytes), to(device, kBytes), host_in(device.pinned(), kBytes), host_out(device.pinned(), kBytes);
  const Tensor x = from.tensor({kElements}, DType::f32), y = to.tensor({kElements}, DType::f32);
  Ticket free;
  for (int i = 0; i < 10; ++i) {
    auto* values = reinterpret_cast<float*>(host_in.data());
    for (std::int64_t element = 0; element < kElements; ++element) values[element] = static_cast<float>(i);
    const Ticket in = device.start_copy_to_device(x.data(), host_in.data(), kBytes, free);
    device.order_after(in);
    backend.ops->copy(x, y);
    free = device.mark();
    device.wait(device.start_copy_to_host(host_out.data(), y.data(), kBytes, free));
    CHECK(all_are(host_out, static_cast<float>(i)));
  }
}

TEST_CASE("device: asking for unfinished work leaves no error to later operations") {
  Backend backend = make_cuda_backend(0);
  Device& device = *backend.device;
  Buffer memory(device, kBytes), host(device.pinned(), kBytes);
  const Tensor x = memory.tensor({kElements}, DType::f32);
  bool waited = false;
  for (int i = 0; i < 100 && !waited; ++i) {
    for (int j = 0; j < 20; ++j) backend.ops->fill(x, j);
    const Ticket last = device.mark();
    waited = !device.complete(last);
    CHECK_NOTHROW(backend.ops->fill(x, i));
    device.wait(device.start_copy_to_host(host.data(), x.data(), kBytes, device.mark()));
    CHECK(all_are(host, static_cast<float>(i)));
  }
  CHECK(waited);
}

TEST_CASE("old tickets may be asked for as long as one likes") {
  Backend backend = make_cuda_backend(0);
  Device& device = *backend.device;
  constexpr std::size_t bytes = 64 * sizeof(float);
  Buffer memory(device, bytes), host(device.pinned(), bytes);
  const Tensor x = memory.tensor({64}, DType::f32);
  CHECK(device.complete({}));
  device.wait({});
  device.order_after({});
  backend.ops->fill(x, 1);
  const Ticket first = device.mark();
  for (int i = 0; i < 2000; ++i) {  // many times the events that a queue has
    backend.ops->fill(x, i);
    (void)device.mark();
  }
  device.order_after(first);
  device.wait(device.start_copy_to_host(host.data(), x.data(), bytes, device.mark()));
  CHECK(reinterpret_cast<const float*>(host.data())[63] == 1999);
  device.wait(first);
  CHECK(device.complete(first));
}

TEST_CASE("synchronous copies run after all operations, and take any host memory") {
  Backend backend = make_cuda_backend(0);
  Device& device = *backend.device;
  Buffer memory(device, kBytes), other(device, kBytes);
  const Tensor x = memory.tensor({kElements}, DType::f32);
  std::vector<float> values(kElements, 3);
  device.copy_to_device(x.data(), values.data(), kBytes);
  backend.ops->scale(x, 2);
  device.copy_within(other.data(), x.data(), kBytes);
  backend.ops->fill(x, 0);
  device.copy_to_host(values.data(), other.data(), kBytes);
  CHECK(values == std::vector<float>(kElements, 6));
  CHECK_FALSE(device.is_host_memory());
  CHECK(device.identity().size() == 32);
  CHECK(device.free_bytes().value_or(0) > kBytes);
}

TEST_CASE("a device that is not there and memory that is not there are named") {
  CHECK_THROWS_WITH(make_cuda_backend(4096), Contains("GPU 4096 of the"));
  Backend backend = make_cuda_backend(0);
  CHECK_THROWS_WITH(backend.device->allocate(std::size_t{1} << 50),
                    Contains("out of device memory") && Contains("train.micro_batch_size"));
  Buffer still_fine(*backend.device, 1024);
  const float value = 0;
  CHECK_THROWS_WITH(backend.device->copy_to_device(nullptr, &value, sizeof value),
                    Contains("cudaMemcpyAsync(") && Contains("failed: invalid argument") &&
                        Contains("cudaErrorInvalidValue") && Contains("CUDA_LAUNCH_BLOCKING=1"));
  CHECK_NOTHROW(backend.ops->fill(still_fine.tensor({256}, DType::f32), 1));  // a reported error is not reported again
}
