// Shared by kernels of every family: conversions, loops over elements, vectors of 16 bytes, sums over warps and blocks.
// All sums are made in an order that the launch decides alone, so that they are the same bits in every run.
#pragma once

#include <bit>
#include <type_traits>

#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"

namespace megatron {

inline constexpr unsigned kWarpThreads = 32, kFullWarp = 0xFFFFFFFFu;
inline constexpr int kBlockThreads = 256;  ///< in kernels that loop over elements

/// An element as it is computed with: 16-bit floats as float, everything else as itself.
template <class T>
__device__ __forceinline__ auto to_wide(T x) {
  if constexpr (kHalf<T>)
    return ptx::to_float(x);
  else
    return x;
}
/// A computed value as an element of type T, rounded to nearest even where T is narrower.
template <class T, class From>
__device__ __forceinline__ T to_type(From x) {
  if constexpr (std::is_same_v<T, From>)
    return x;
  else if constexpr (kHalf<T>)
    return ptx::from_float<T>(static_cast<float>(to_wide(x)));
  else
    return static_cast<T>(to_wide(x));
}

__device__ __forceinline__ std::int64_t first_element() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t element_stride() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

/// One-dimensional blocks of kBlockThreads for n elements, a thread for every `width` of them up to enough threads to
/// fill any GPU.
inline LaunchShape elementwise_shape(std::int64_t n, int width = 1) {
  constexpr std::int64_t most = 4096;
  const std::int64_t threads = (n + width - 1) / width, blocks = (threads + kBlockThreads - 1) / kBlockThreads;
  return {.grid = dim3(static_cast<unsigned>(blocks < most ? blocks : most)), .block = dim3(kBlockThreads)};
}

/// Blocks of kBlockThreads with a warp for each row.
inline LaunchShape warp_rows_shape(std::int64_t rows) {
  constexpr std::int64_t warps = kBlockThreads / kWarpThreads;
  return {.grid = dim3(static_cast<unsigned>((rows + warps - 1) / warps)), .block = dim3(kBlockThreads)};
}

template <int width>
using Width = std::integral_constant<int, width>;

/// Calls body(at, Width<widest>()) for all whole vectors of n elements, shared out over the launch's threads, and
/// body(at, Width<1>()) for each element that is left.
template <int widest, class Body>
__device__ __forceinline__ void for_each_vector(std::int64_t n, const Body& body) {
  const std::int64_t vectors = n / widest;
  for (std::int64_t i = first_element(); i < vectors; i += element_stride()) body(i * widest, Width<widest>());
  if constexpr (widest > 1) {
    for (std::int64_t i = vectors * widest + first_element(); i < n; i += element_stride()) body(i, Width<1>());
  }
}

/// `width` elements that lie side by side (a power of two; 1: the scalar path), loaded and stored together, 16 bytes at
/// a time where there are enough.
template <class T, int width = 16 / static_cast<int>(sizeof(T))>
struct alignas(width * sizeof(T) < 16 ? width * sizeof(T) : 16) Vector {
  static constexpr int size = width;
  T values[width];
};
template <int width, class T>
__device__ __forceinline__ Vector<T, width> load_vector(const T* from) {
  return *reinterpret_cast<const Vector<T, width>*>(from);
}
template <class T>
__device__ __forceinline__ Vector<T> load_vector(const T* from) {
  return load_vector<Vector<T>::size>(from);
}
template <class T, int width>
__device__ __forceinline__ void store_vector(T* to, const Vector<T, width>& vector) {
  *reinterpret_cast<Vector<T, width>*>(to) = vector;
}
/// The same into global memory, 16 bytes an instruction: the compiler at times makes several of a struct's store.
template <class T, int width>
__device__ __forceinline__ void store_global(T* to, const Vector<T, width>& vector) {
  if constexpr (sizeof(vector) == 16) {
    *reinterpret_cast<uint4*>(to) = std::bit_cast<uint4>(vector);
  } else if constexpr (sizeof(vector) == 32) {
    struct Halves {
      uint4 first, second;
    };
    const auto halves = std::bit_cast<Halves>(vector);
    reinterpret_cast<uint4*>(to)[0] = halves.first;
    reinterpret_cast<uint4*>(to)[1] = halves.second;
  } else if constexpr (sizeof(vector) == 8) {
    *reinterpret_cast<uint2*>(to) = std::bit_cast<uint2>(vector);
  } else {
    store_vector(to, vector);
  }
}

/// The elements of an activation type as they are computed with, and back; stored in global memory.
template <class T, int width>
__device__ __forceinline__ Vector<float, width> to_floats(const Vector<T, width>& vector) {
  Vector<float, width> result;
  for (int i = 0; i < width; ++i) result.values[i] = to_wide(vector.values[i]);
  return result;
}
template <int width, class T>
__device__ __forceinline__ Vector<float, width> load_floats(const T* from) {
  return to_floats(load_vector<width>(from));
}
template <class T, int width>
__device__ __forceinline__ Vector<T, width> narrow_floats(const Vector<float, width>& vector) {
  if constexpr (kHalf<T> && width > 1) {  // two are rounded by one instruction
    Vector<std::uint32_t, width / 2> pairs;
    for (int i = 0; i < width / 2; ++i) {
      pairs.values[i] = ptx::pack<T>(vector.values[2 * i], vector.values[2 * i + 1]);
    }
    return std::bit_cast<Vector<T, width>>(pairs);
  } else {
    Vector<T, width> result;
    for (int i = 0; i < width; ++i) result.values[i] = ptx::from_float<T>(vector.values[i]);
    return result;
  }
}
template <class T, int width>
__device__ __forceinline__ void store_floats(T* to, const Vector<float, width>& vector) {
  store_global(to, narrow_floats<T>(vector));
}

/// Whether vectors can be loaded from these places (null ones aside).
template <class... Pointers>
bool aligned(const Pointers*... places) {
  return ((reinterpret_cast<std::uintptr_t>(places) % 16 == 0) && ...);
}
/// Whether rows of `columns` elements, from these places on, consist of aligned vectors.
template <class T, class... Pointers>
bool vectorizable(std::int64_t columns, const Pointers*... places) {
  return columns % Vector<T>::size == 0 && aligned(places...);
}

/// The sum over the warp, in every lane.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kFullWarp, value, lanes);
  return value;
}
__device__ __forceinline__ float warp_maximum(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(kFullWarp, value, lanes);
    value = other > value ? other : value;
  }
  return value;
}

/// The sum over a one-dimensional block of whole warps, in every thread. `partial`: shared memory of 32 elements, free
/// again at the block's next barrier.
template <class T>
__device__ __forceinline__ T block_sum(T value, T* partial) {
  const unsigned warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
  value = warp_sum(value);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_sum(lane < blockDim.x / kWarpThreads ? partial[lane] : T{0});
}

/// The same for the largest.
__device__ __forceinline__ float block_maximum(float value, float* partial) {
  const unsigned warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
  value = warp_maximum(value);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_maximum(lane < blockDim.x / kWarpThreads ? partial[lane] : partial[0]);
}

}  // namespace megatron
