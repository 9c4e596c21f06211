#include "distributed/comm/ordered_reduction.h"

#include <algorithm>

#include "base/core/half.h"

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

template <class Result, class SoFar, class T, class Combine>
void combine_block(Result* result, const SoFar* so_far, const T* next, std::int64_t count, Combine combine) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) result[i] = narrow<Result>(combine(wide(so_far[i]), wide(next[i])));
}

// 16-bit floats are added up in f32. Works block by block so that the running sum stays in the first-level cache while
// the sources stream by; of two sources there is none. `destination` may be a source: elements are read before they are
// written.
template <class T, class Combine>
void reduce_blocks(std::span<const void* const> sources, void* destination, std::int64_t elements, Combine combine) {
  constexpr std::int64_t kBlock = 1024;
  alignas(64) decltype(wide(T{})) running[kBlock];
  for (std::int64_t first = 0; first < elements; first += kBlock) {
    const std::int64_t count = std::min(kBlock, elements - first);
    const auto source = [&](std::size_t k) { return static_cast<const T*>(sources[k]) + first; };
    T* target = static_cast<T*>(destination) + first;
    const std::size_t last = sources.size() - 1;
    if (last == 0) {
      if (source(0) != target) std::copy(source(0), source(0) + count, target);
    } else if (last == 1) {
      combine_block(target, source(0), source(1), count, combine);
    } else {
      combine_block(running, source(0), source(1), count, combine);
      for (std::size_t k = 2; k < last; ++k) combine_block(running, running, source(k), count, combine);
      combine_block(target, running, source(last), count, combine);
    }
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
    case DType::bf16: return reduce_typed<BFloat16>(reduce, sources, destination, elements);
    case DType::f16: return reduce_typed<Float16>(reduce, sources, destination, elements);
    case DType::u8: break;
  }
  fail(ErrorKind::internal, "{} cannot be reduced", name_of(type));
}

}  // namespace megatron
