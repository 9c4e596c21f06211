// Stands in for CUDA's header of this name, so that the sources of cuda/ are compiled by the C++ compiler and run
// without a GPU, by fibers.h: slowly, and as strictly as the programming model allows. What is not here is not used.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "fibers.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __constant__ static const
#define __align__(bytes) alignas(bytes)
// Blocks run one after the other on a thread, so that one memory serves them all; ranks may be threads.
#define __shared__ static thread_local

#define threadIdx (::emulated_cuda::current_thread())
#define blockIdx (::emulated_cuda::current_block())
#define blockDim (::emulated_cuda::block_extent())
#define gridDim (::emulated_cuda::grid_extent())

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

inline void __syncthreads() {
  emulated_cuda::synchronize_block();
}
inline void __syncwarp() {
  emulated_cuda::synchronize_warp();
}
inline int __syncthreads_or(int predicate) {
  return emulated_cuda::any_of_block(predicate != 0) ? 1 : 0;
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  const int own = emulated_cuda::lane();
  return emulated_cuda::exchange(mask, value, (own & ~(width - 1)) | (lane & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const int own = emulated_cuda::lane(), from = own ^ lanes;
  return emulated_cuda::exchange(mask, value, (from & ~(width - 1)) == (own & ~(width - 1)) ? from : own);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int lanes, int width = 32) {
  const int own = emulated_cuda::lane();
  return emulated_cuda::exchange(mask, value, (own & (width - 1)) + lanes < width ? own + lanes : own);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int lanes, int width = 32) {
  const int own = emulated_cuda::lane();
  return emulated_cuda::exchange(mask, value, (own & (width - 1)) - lanes >= 0 ? own - lanes : own);
}

/// For a warp of 32.
inline int __any_sync(unsigned mask, int predicate) {
  emulated_cuda::check_mask(mask);
  const emulated_cuda::Slots slots = emulated_cuda::lay_down(&predicate, sizeof predicate);
  bool any = false;
  for (int lane = 0; lane < 32; ++lane) {
    int other;
    std::memcpy(&other, slots[lane], sizeof other);
    any = any || other != 0;
  }
  return any ? 1 : 0;
}
/// Mask of the lanes that have the same value. Whole warps only.
inline unsigned __match_any_sync(unsigned mask, int value) {
  emulated_cuda::check_mask(mask);
  const emulated_cuda::Slots slots = emulated_cuda::lay_down(&value, sizeof value);
  unsigned same = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (std::memcmp(slots[lane], &value, sizeof value) == 0) same |= 1u << lane;
  }
  return same;
}
inline int atomicAdd(int* place, int value) {
  const int before = *place;
  *place += value;
  return before;
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}

template <class T>
T __ldg(const T* place) {
  return *place;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((std::uint64_t{a} * b) >> 32);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline void sincospif(float x, float* sine, float* cosine) {
  const double angle = static_cast<double>(x) * 3.14159265358979323846;
  *sine = static_cast<float>(std::sin(angle));
  *cosine = static_cast<float>(std::cos(angle));
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __fdividef(float x, float y) {
  return x / y;
}

// ---- the runtime library: one device, whose memory is the host's and whose streams are always done ----------------
using cudaStream_t = struct EmulatedStream*;
using cudaEvent_t = struct EmulatedEvent*;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0,
                          cudaMemAttachGlobal = 1;
struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  std::size_t totalGlobalMem;
  int major, minor, multiProcessorCount, clockRate, memoryClockRate, memoryBusWidth, l2CacheSize;
  std::size_t sharedMemPerBlockOptin;
};

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned flags = cudaMemAttachGlobal);
cudaError_t cudaFree(void* memory);
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaDeviceSynchronize();
namespace emulated_cuda {
void lose_device();  ///< as an illegal access does: from now on the device synchronises with this error
}
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaGetLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
