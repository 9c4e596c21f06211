// The runtime library of the emulated devices: their memory is the host's, and everything is done when its call
// returns, although an event says so only when it is asked again. There is one of compute capability 9.0, or those of
// MEGATRON_EMULATED_GPUS, e.g. "7.5 8.9". MEGATRON_EMULATED_DRIVER=old: a driver that knows no CUDA of this version;
// idle: one that has no device.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

struct EmulatedStream {};
struct EmulatedEvent {
  std::chrono::steady_clock::time_point time;
  bool known_to_be_done = true;
};

namespace {
constexpr std::size_t kAlignment = 256;  // CUDA's
}

namespace {

struct Capability {
  int major = 9, minor = 0;
  /// Shared memory that a block can have, as CUDA's programming guide lists it.
  std::size_t shared_bytes() const {
    const std::size_t kibibytes = major == 9                                 ? 227
                                  : major == 8 && (minor == 0 || minor == 7) ? 163
                                  : major < 8                                ? 64
                                                                             : 99;
    return kibibytes << 10;
  }
};

const std::vector<Capability>& devices() {
  static const std::vector<Capability> all = [] {
    const char* wanted = std::getenv("MEGATRON_EMULATED_GPUS");
    std::istringstream text(wanted == nullptr ? "9.0" : wanted);
    std::vector<Capability> result;
    Capability next;
    for (char point = 0; text >> next.major >> point >> next.minor;) result.push_back(next);
    return result;
  }();
  return all;
}

bool device_is_lost = false;
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

/// As every function of CUDA's does with what it returns.
cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace

std::size_t emulated_cuda::shared_bytes_per_block() {
  return devices().at(static_cast<std::size_t>(current_device)).shared_bytes();
}

void emulated_cuda::lose_device() {
  device_is_lost = true;
}

cudaError_t cudaGetDeviceCount(int* count) {
  const char* driver = std::getenv("MEGATRON_EMULATED_DRIVER");
  if (driver != nullptr) {
    *count = 0;
    return noted(std::string_view(driver) == "old" ? cudaErrorInsufficientDriver : cudaErrorNoDevice);
  }
  *count = static_cast<int>(devices().size());
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= static_cast<int>(devices().size())) return noted(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Capability& capability = devices().at(static_cast<std::size_t>(device));
  *properties = {};
  std::strcpy(properties->name, "emulated GPU");
  properties->uuid.bytes[0] = static_cast<char>(device);
  properties->totalGlobalMem = std::size_t{8} << 30;
  properties->major = capability.major;
  properties->minor = capability.minor;
  properties->multiProcessorCount = 4;
  properties->sharedMemPerBlockOptin = capability.shared_bytes();
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{8} << 30;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = bytes > (std::size_t{8} << 30)
                ? nullptr
                : std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return noted(*memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
  return cudaFree(memory);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (bytes > 0 && (to == nullptr || from == nullptr)) return noted(cudaErrorInvalidValue);
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t) {
  if (bytes > 0) std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return noted(device_is_lost ? cudaErrorIllegalAddress : cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->time = std::chrono::steady_clock::now();
  event->known_to_be_done = false;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return noted(std::exchange(event->known_to_be_done, true) ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  event->known_to_be_done = true;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int value) {
  const bool possible = static_cast<std::size_t>(value) <= emulated_cuda::shared_bytes_per_block();
  return noted(possible ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorInvalidValue ? "cudaErrorInvalidValue"
         : error == cudaErrorNotReady   ? "cudaErrorNotReady"
                                        : "another error";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidValue         ? "invalid argument"
         : error == cudaErrorInsufficientDriver ? "the driver is older than the runtime"
         : error == cudaErrorIllegalAddress     ? "an illegal memory access"
                                                : "another error of the emulated device";
}
