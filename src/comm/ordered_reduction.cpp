#include "comm/ordered_reduction.h"

#include <algorithm>
#include <cstring>

namespace megatron {

namespace {

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
  // Integers wrap: overflow of a count is the caller's business, not undefined behaviour here.
  std::int32_t operator()(std::int32_t a, std::int32_t b) const {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  }
};

struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    return (a >= b || a != a) ? a : b;  // a NaN on either side survives
  }
};

// Works block by block so that the running sum stays in the first-level cache while the sources stream by; of two
// sources there is none. `destination` may be a source: elements are read before they are written.
template <class T, class Combine>
void reduce_blocks(std::span<const void* const> sources, void* destination, std::int64_t elements, Combine combine) {
  constexpr std::int64_t kBlock = 1024;
  alignas(64) T running[kBlock];
  for (std::int64_t first = 0; first < elements; first += kBlock) {
    const std::int64_t count = std::min(kBlock, elements - first);
    const T* so_far = static_cast<const T*>(sources[0]) + first;
    T* target = static_cast<T*>(destination) + first;
    for (std::size_t k = 1; k < sources.size(); ++k) {
      const T* next = static_cast<const T*>(sources[k]) + first;
      T* sum = k + 1 == sources.size() ? target : running;
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) sum[i] = combine(so_far[i], next[i]);
      so_far = sum;
    }
    if (so_far != target) std::copy(so_far, so_far + count, target);
  }
}

template <class T>
void reduce_typed(Reduce reduce, std::span<const void* const> sources, void* destination, std::int64_t elements) {
  if (reduce == Reduce::sum) {
    reduce_blocks<T>(sources, destination, elements, Sum{});
  } else {
    reduce_blocks<T>(sources, destination, elements, Maximum{});
  }
}

}  // namespace

void reduce_in_rank_order(DType type, Reduce reduce, std::span<const void* const> sources, void* destination,
                          std::int64_t elements) {
  switch (type) {
    case DType::f32: return reduce_typed<float>(reduce, sources, destination, elements);
    case DType::f64: return reduce_typed<double>(reduce, sources, destination, elements);
    case DType::i32: return reduce_typed<std::int32_t>(reduce, sources, destination, elements);
    default: fail(ErrorKind::internal, "{} cannot be reduced, only f32, f64 and i32", name_of(type));
  }
}

}  // namespace megatron
