#include "cuda/cuda_device.h"

#include "backend/ops/backends.h"
#include "cuda/cuda_check.h"
#include "cuda/cuda_support.h"

namespace megatron {

namespace {

cudaDeviceProp open_device(int index) {
  const VisibleGpus gpus = visible_gpus();
  const int count = static_cast<int>(gpus.usable.size());
  verify(index >= 0 && index < count, ErrorKind::configuration,
         "GPU {} of the {} that this process sees (CUDA_VISIBLE_DEVICES) and can use{}{}; start fewer ranks on this "
         "node, or use run.device = \"cpu\"",
         index, count, gpus.unusable.empty() ? "" : ": ", gpus.unusable);
  const int number = gpus.usable[static_cast<std::size_t>(index)];
  CUDA_CHECK(cudaSetDevice(number));
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, number));
  return properties;
}

std::string hexadecimal(const cudaUUID_t& uuid) {
  std::string text;
  for (const char byte : uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

double gibibytes(std::size_t bytes) {
  return static_cast<double>(bytes) / 0x1p30;
}

}  // namespace

CudaDevice::CudaDevice(int index)
    : properties_(open_device(index)),
      description_(fmt::format("{}, {:.1f} GiB", properties_.name, gibibytes(properties_.totalGlobalMem))),
      identity_(hexadecimal(properties_.uuid)) {}

std::optional<std::size_t> CudaDevice::free_bytes() const {
  std::size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

void* CudaDevice::allocate(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, bytes == 0 ? 1 : bytes);
  if (result == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    fail(ErrorKind::configuration,
         "out of device memory: could not get {:.2f} GiB, {:.2f} of {:.2f} GiB are free; use a smaller "
         "train.micro_batch_size, recompute.mode = \"full\", or more tensor or pipeline ranks (--dry-run predicts the "
         "memory)",
         gibibytes(bytes), gibibytes(free_bytes().value()), gibibytes(properties_.totalGlobalMem));
  }
  CUDA_CHECK(result);
  return memory;
}

void CudaDevice::deallocate(void* memory, std::size_t) noexcept {
  (void)cudaFree(memory);  // waits for the work that may use it
}

void* CudaDevice::Pinned::allocate(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t result = cudaHostAlloc(&memory, bytes == 0 ? 1 : bytes, cudaHostAllocDefault);
  if (result == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    fail(ErrorKind::configuration,
         "the host has not {:.2f} GiB more that can be pinned for the GPU; start fewer ranks on this node, or "
         "raise its limits (ulimit -l, the memory of the job)",
         gibibytes(bytes));
  }
  CUDA_CHECK(result);
  return memory;
}

void CudaDevice::Pinned::deallocate(void* memory, std::size_t) noexcept {
  (void)cudaDeviceSynchronize();  // copies in flight may be using it
  (void)cudaFreeHost(memory);
}

// The addresses say the direction: pinned memory may hold what is offloaded, which is the device's to all callers.
void CudaDevice::copy_to_device(void* device, const void* host, std::size_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyDefault, compute_stream()));
  CUDA_CHECK(cudaStreamSynchronize(compute_stream()));
}

void CudaDevice::copy_to_host(void* host, const void* device, std::size_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDefault, compute_stream()));
  CUDA_CHECK(cudaStreamSynchronize(compute_stream()));
}

void CudaDevice::copy_within(void* to, const void* from, std::size_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, compute_stream()));
}

CudaQueue& CudaDevice::queue_of(Ticket ticket) {
  return ticket.queue == kCopiesOut ? copies_out_ : ticket.queue == kCopiesIn ? copies_in_ : operations_;
}

Ticket CudaDevice::start_copy(std::uint32_t queue, void* to, const void* from, std::size_t bytes, Ticket after) {
  CudaQueue& copies = queue_of({queue, 0});
  copies.start_after(queue_of(after), after.number);
  CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies.stream()));
  return {queue, copies.mark()};
}

Ticket CudaDevice::start_copy_to_host(void* host, const void* device, std::size_t bytes, Ticket after) {
  return start_copy(kCopiesOut, host, device, bytes, after);
}

Ticket CudaDevice::start_copy_to_device(void* device, const void* host, std::size_t bytes, Ticket after) {
  return start_copy(kCopiesIn, device, host, bytes, after);
}

void CudaDevice::synchronize() {
  CUDA_CHECK(cudaDeviceSynchronize());
}

}  // namespace megatron
