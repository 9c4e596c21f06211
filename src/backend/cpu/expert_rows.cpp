#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/expert_routing_shape.h"

namespace megatron {

namespace {

constexpr std::int64_t kChunk = 1024;  // sums kept on the stack at a time

// Not inline: inside their callers GCC 12 does not vectorise them for f16.

template <class T>
[[gnu::noinline]] void scale_to(const T* x, float factor, T* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = narrow<T>(factor * wide(x[i]));
}

template <class T>
[[gnu::noinline]] void add_scaled(const T* x, float factor, float* sums, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sums[i] += factor * wide(x[i]);
}

template <class T>
[[gnu::noinline]] void narrow_to(const float* sums, T* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = narrow<T>(sums[i]);
}

template <class T>
[[gnu::noinline]] float dot(const T* a, const T* b, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += wide(a[i]) * wide(b[i]);
  return sum;
}

template <class T>
void dispatch_to(const DispatchRowsShape<T>& at, std::int64_t slot) {
  T* y = at.y + slot * at.columns;
  const std::int32_t entry = at.entries[slot];
  const std::int64_t row = at.row_of(entry);
  if (row < 0) {
    std::fill_n(y, at.columns, T{});
  } else if (at.gates == nullptr) {
    std::copy_n(at.x + row * at.columns, at.columns, y);
  } else {
    scale_to(at.x + row * at.columns, at.gates[entry], y, at.columns);
  }
}

template <class T>
void combine_to(const CombineRowsShape<T>& at, std::int64_t row) {
  if (!at.changes(row)) return;
  alignas(64) float sums[kChunk];
  for (std::int64_t first = 0; first < at.columns; first += kChunk) {
    const std::int64_t count = std::min(kChunk, at.columns - first);
    std::fill_n(sums, count, 0.0f);
    if (at.accumulate) add_scaled(at.y + row * at.columns + first, 1.0f, sums, count);
    for (std::int64_t choice = row * at.top_k; choice < (row + 1) * at.top_k; ++choice) {
      const T* x = at.row_of(choice);
      if (x != nullptr) add_scaled(x + first, at.gates == nullptr ? 1.0f : at.gates[choice], sums, count);
    }
    narrow_to(sums, at.y + row * at.columns + first, count);
  }
}

}  // namespace

void CpuOps::dispatch_rows(const DispatchRowsArgs& args) {
  with_activation_type("dispatch_rows", args.x.dtype(), [&]<class T>(T) {
    const DispatchRowsShape<T> at(args);
    team_.rows(at.slots, at.columns, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t slot = first; slot < last; ++slot) dispatch_to(at, slot);
    });
  });
}

void CpuOps::combine_rows(const CombineRowsArgs& args) {
  with_activation_type("combine_rows", args.x.dtype(), [&]<class T>(T) {
    const CombineRowsShape<T> at(args);
    team_.rows(at.rows, at.columns * at.top_k, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) combine_to(at, row);
    });
  });
}

void CpuOps::combine_gates_backward(const CombineGatesBackwardArgs& args) {
  with_activation_type("combine_gates_backward", args.x.dtype(), [&]<class T>(T) {
    const CombineGatesBackwardShape<T> at(args);
    team_.rows(at.rows, at.columns * at.top_k, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t choice = first * at.top_k; choice < last * at.top_k; ++choice) {
        const T* x = at.row_of(choice);
        at.dgates[choice] = x == nullptr ? 0.0f : dot(x, at.dy + choice / at.top_k * at.columns, at.columns);
      }
    });
  });
}

}  // namespace megatron
