// Common parts of the cases of communicators: values that every rank can compute of every other, and comparisons.
//
// Test frameworks are not thread-safe, so a comparison throws on the first difference; the caller reports it.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/core/half.h"
#include "distributed/comm/communicator.h"

namespace megatron::communicator_cases {

template <class... Args>
void expect(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw std::runtime_error(fmt::format(format, std::forward<Args>(args)...));
}

/// The i-th element that `rank` contributes: of very different magnitudes, so that the order of a sum shows.
template <class T>
T element(int rank, std::int64_t i) {
  std::uint64_t hash = (static_cast<std::uint64_t>(rank) + 1) * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(i);
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ULL;
  hash ^= hash >> 27;
  if constexpr (kHalf<T>) {
    return narrow<T>(element<float>(rank, i));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(hash % 1000003);
  } else {
    const double fraction = static_cast<double>(hash >> 11) * 0x1.0p-53 - 0.5;
    constexpr std::array<double, 4> kScales{0x1.0p-12, 0x1.0p-3, 1, 0x1.0p11};
    return static_cast<T>(fraction * kScales[hash % 4]);
  }
}

template <class T>
std::vector<T> elements_of(int rank, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = element<T>(rank, i);
  return values;
}

/// The serial answer: rank 0's elements combined with rank 1's, then with rank 2's, ... 16-bit floats in f32, rounded
/// at the end.
template <class T>
std::vector<T> reduced(int ranks, std::int64_t count, Reduce reduce, bool backwards = false) {
  using Wide = decltype(wide(T{}));
  const auto elements = [&](int k) {
    const std::vector<T> values = elements_of<T>(backwards ? ranks - 1 - k : k, count);
    std::vector<Wide> result;
    for (const T value : values) result.push_back(wide(value));
    return result;
  };
  std::vector<Wide> total = elements(0);
  for (int k = 1; k < ranks; ++k) {
    const std::vector<Wide> next = elements(k);
    for (std::size_t i = 0; i < total.size(); ++i) {
      total[i] = reduce == Reduce::sum ? total[i] + next[i] : std::max(total[i], next[i]);
    }
  }
  std::vector<T> rounded;
  for (const Wide value : total) rounded.push_back(narrow<T>(value));
  return rounded;
}

template <class T>
Tensor tensor_of(std::vector<T>& values) {
  return {values.data(), {static_cast<std::int64_t>(values.size())}, DTypeOf<T>::value};
}

template <class T>
void expect_same_bits(const std::vector<T>& got, const T* wanted, const char* what, const Communicator& group) {
  if (got.empty() || std::memcmp(got.data(), wanted, got.size() * sizeof(T)) == 0) return;
  for (std::size_t i = 0; i < got.size(); ++i) {
    expect(std::memcmp(&got[i], wanted + i, sizeof(T)) == 0,
           "{} in group '{}', rank {} of {}, {} elements: element {} is {}, not {}", what, group.name(), group.rank(),
           group.size(), got.size(), i, wide(got[i]), wide(wanted[i]));
  }
}

inline const std::vector<std::int64_t>& awkward_sizes() {
  static const std::vector<std::int64_t> sizes{0, 1, 7, 1000, 4097, 200003};
  return sizes;
}

}  // namespace megatron::communicator_cases
