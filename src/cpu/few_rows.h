// Products of a few rows with a 16-bit matrix, c = x · wᵀ, as decoding makes them for one token per prompt: w is read
// once and widened in the nearest cache. An element of c is the same bits whatever other rows and columns are computed
// with it. On the calling thread alone; knows pointers, no tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/attention_tile.h"

namespace megatron::few_rows {

using attention::kLanes;
using attention::Lanes;

/// The most rows of x: above, blocks of w that stay in cache are worth packing.
inline constexpr std::int64_t kMostRows = 16;
inline constexpr std::int64_t kColumns = 4;   // rows of w that are read together
inline constexpr std::int64_t kDepth = 1024;  // elements of them at a time
inline constexpr std::int64_t kDepthStride = kDepth + 16;

/// Floats from row to row of widened x.
constexpr std::int64_t widened_stride(std::int64_t k) {
  return (k + 15) / 16 * 16 + 16;  // not a power of two: rows would share cache sets
}

/// x as floats.
template <class T>
void widen(std::int64_t rows, std::int64_t k, const T* x, std::int64_t x_stride, float* y) {
  for (std::int64_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (std::int64_t i = 0; i < k; ++i) y[row * widened_stride(k) + i] = wide(x[row * x_stride + i]);
  }
}

inline Lanes load_part(const float* x, std::int64_t count) {
  Lanes value{};
  std::memcpy(&value, x, static_cast<std::size_t>(count) * sizeof(float));
  return value;
}

/// sums[row * kColumns + column] += x[row] · w[column], in lanes.
template <int rows>
void add_products(const float* x, std::int64_t x_stride, const float* const w[kColumns], std::int64_t count,
                  Lanes* sums) {
  Lanes own[rows * kColumns];
  std::copy_n(sums, rows * kColumns, own);
  const auto add = [&](const auto& load_lanes) {
    Lanes columns[kColumns];
    for (int j = 0; j < kColumns; ++j) columns[j] = load_lanes(w[j]);
    for (int i = 0; i < rows; ++i) {
      const Lanes row = load_lanes(x + i * x_stride);
      for (int j = 0; j < kColumns; ++j) own[i * kColumns + j] += row * columns[j];
    }
  };
  std::int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    add([at](const float* values) { return attention::load(values + at); });
  }
  if (at < count) add([&](const float* values) { return load_part(values + at, count - at); });
  std::copy_n(own, rows * kColumns, sums);
}

/// Into the nearest cache. Any address will do.
inline void prefetch(const void* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
}

/// The columns of c that `columns` rows of w make, at most kColumns of them.
template <class W, class Result>
void multiply_columns(std::int64_t rows, std::int64_t columns, std::int64_t k, const float* x, std::int64_t x_stride,
                      const W* w, std::int64_t w_stride, Result* c, std::int64_t c_stride, bool accumulate) {
  Lanes sums[kMostRows * kColumns] = {};
  alignas(64) float widened[kColumns * kDepthStride];
  for (std::int64_t first = 0; first < k; first += kDepth) {
    const std::int64_t count = std::min(kDepth, k - first);
    const float* sources[kColumns];
    for (std::int64_t j = 0; j < kColumns; ++j) {
      const W* source = w + std::min(j, columns - 1) * w_stride + first;  // the last one again: its sums go unused
      float* to = widened + j * kDepthStride;
      prefetch(source + kColumns * w_stride, static_cast<std::size_t>(count) * sizeof(W));  // the next columns' share
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) to[i] = wide(source[i]);
      sources[j] = to;
    }
    std::int64_t row = 0;
    for (; row + 4 <= rows; row += 4) {
      add_products<4>(x + row * x_stride + first, x_stride, sources, count, sums + row * kColumns);
    }
    const float* rest = x + row * x_stride + first;
    Lanes* rest_sums = sums + row * kColumns;
    switch (rows - row) {
      case 1: add_products<1>(rest, x_stride, sources, count, rest_sums); break;
      case 2: add_products<2>(rest, x_stride, sources, count, rest_sums); break;
      case 3: add_products<3>(rest, x_stride, sources, count, rest_sums); break;
      default: break;
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t j = 0; j < columns; ++j) {
      Result& to = c[row * c_stride + j];
      const float sum = attention::sum_of(sums[row * kColumns + j]);
      to = narrow<Result>(accumulate ? wide(to) + sum : sum);
    }
  }
}

/// c[rows, n] = x[rows, k] · w[n, k]ᵀ, added to c if `accumulate`; rows <= kMostRows.
template <class W, class Result>
void multiply(std::int64_t rows, std::int64_t n, std::int64_t k, const float* x, std::int64_t x_stride, const W* w,
              std::int64_t w_stride, Result* c, std::int64_t c_stride, bool accumulate) {
  for (std::int64_t column = 0; column < n; column += kColumns) {
    multiply_columns(rows, std::min(kColumns, n - column), k, x, x_stride, w + column * w_stride, w_stride, c + column,
                     c_stride, accumulate);
  }
}

}  // namespace megatron::few_rows
