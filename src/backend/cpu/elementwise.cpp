#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/vector_math.h"
#include "backend/ops/arguments.h"
#include "base/core/philox.h"

namespace megatron {

namespace {

constexpr std::int64_t kNormalCalls = 16;                // Philox calls side by side
constexpr std::int64_t kNormalBlock = 4 * kNormalCalls;  // normal variates of one block

/// Radius and angle of Box and Muller: word 0 gives u = (word + 1/2) / 2^32 in (0, 1], word 1 the turn; the first
/// variate of the pair is the cosine's.
inline void box_muller(std::uint32_t word0, std::uint32_t word1, float deviation, float& first, float& second) {
  const float u = static_cast<float>(word0) * 0x1p-32f + 0x1p-33f;
  const float radius = deviation * std::sqrt(-2.0f * vector_log(u));
  const SineCosine angle = vector_sine_cosine(word1);
  first = radius * angle.cosine;
  second = radius * angle.sine;
}

/// Variates of elements 4 first_call ... 4 first_call + 63. Always the whole block, so that an element is computed by
/// the same instructions in whichever box it is asked for.
void normal_block(std::uint64_t first_call, std::uint64_t key, float deviation, float* variates) {
  float lanes[4][kNormalCalls];
  for (std::int64_t i = 0; i < kNormalCalls; ++i) {
    const std::uint64_t call = first_call + static_cast<std::uint64_t>(i);
    const PhiloxCounter words =
        philox4x32<7>({static_cast<std::uint32_t>(call), static_cast<std::uint32_t>(call >> 32), 0, 0}, key);
    box_muller(words[0], words[1], deviation, lanes[0][i], lanes[1][i]);
    box_muller(words[2], words[3], deviation, lanes[2][i], lanes[3][i]);
  }
  for (std::int64_t i = 0; i < kNormalCalls; ++i) {
    for (std::int64_t lane = 0; lane < 4; ++lane) variates[4 * i + lane] = lanes[lane][i];
  }
}

template <class T>
void normal_row(std::int64_t first_element, std::int64_t count, std::uint64_t key, float deviation, T* y) {
  float variates[kNormalBlock];
  std::int64_t skipped = first_element % 4;
  auto call = static_cast<std::uint64_t>(first_element / 4);
  while (count > 0) {
    normal_block(call, key, deviation, variates);
    const std::int64_t taken = std::min(count, kNormalBlock - skipped);
    for (std::int64_t i = 0; i < taken; ++i) y[i] = narrow<T>(variates[skipped + i]);
    y += taken;
    count -= taken;
    skipped = 0;
    call += static_cast<std::uint64_t>(kNormalCalls);
  }
}

/// Calls body with a zero of the element type of a float dtype.
template <class Body>
void with_float_type(const char* verb, DType type, const Body& body) {
  switch (type) {
    case DType::f32: return body(float{});
    case DType::f64: return body(double{});
    case DType::bf16: return body(BFloat16{});
    case DType::f16: return body(Float16{});
    case DType::i32:
    case DType::u8: break;
  }
  fail(ErrorKind::configuration, "{}: this backend has no {}", verb, name_of(type));
}

template <class T>
void fill_normal(const ThreadTeam& team, const NormalArgs& args) {
  const RowsOf size(args.y);
  T* y = elements_of<T>("normal", args.y, size.elements());
  internal_check(
      args.first_row >= 0 && args.first_column >= 0 && args.first_column + size.columns <= args.global_columns,
      "normal: the box is outside its matrix", args.first_row, args.first_column, size.columns, args.global_columns);
  if (args.first_column == 0 && size.columns == args.global_columns) {  // whole rows follow each other
    return team.elements(size.elements(), [&](std::int64_t first, std::int64_t last) {
      normal_row(args.first_row * args.global_columns + first, last - first, args.key, args.deviation, y + first);
    });
  }
  team.rows(size.rows, size.columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t first_element = (args.first_row + row) * args.global_columns + args.first_column;
      normal_row(first_element, size.columns, args.key, args.deviation, y + row * size.columns);
    }
  });
}

}  // namespace

void CpuOps::normal(const NormalArgs& args) {
  with_activation_type("normal", args.y.dtype(), [&]<class T>(T) { fill_normal<T>(team_, args); });
}

void CpuOps::fill(Tensor y, double value) {
  internal_check(y.contiguous(), "fill");
  const std::int64_t n = y.elements();
  const auto fill_with = [&]<class T>(T element) {
    T* to = static_cast<T*>(y.data());
    team_.elements(n, [=](std::int64_t first, std::int64_t last) { std::fill(to + first, to + last, element); });
  };
  if (y.dtype() == DType::i32) {
    fill_with(static_cast<std::int32_t>(value));
  } else if (y.dtype() == DType::u8) {
    fill_with(static_cast<std::uint8_t>(value));
  } else {
    with_float_type("fill", y.dtype(), [&]<class T>(T) { fill_with(narrow<T>(value)); });
  }
}

void CpuOps::read(ConstTensor x, void* host) {
  internal_check(x.contiguous(), "read");
  if (x.elements() > 0) std::memcpy(host, x.data(), x.bytes());
}

void CpuOps::copy(ConstTensor x, Tensor y) {
  internal_check(x.elements() == y.elements() && x.contiguous() && y.contiguous(), "copy", x.shape(), y.shape());
  if (x.dtype() == y.dtype()) {
    const auto* from = static_cast<const std::byte*>(x.data());
    auto* to = static_cast<std::byte*>(y.data());
    return team_.elements(static_cast<std::int64_t>(x.bytes()), [=](std::int64_t first, std::int64_t last) {
      std::memcpy(to + first, from + first, static_cast<std::size_t>(last - first));
    });
  }
  const std::int64_t n = x.elements();
  with_float_type("copy", x.dtype(), [&]<class From>(From) {
    with_float_type("copy", y.dtype(), [&]<class To>(To) {
      const From* from = static_cast<const From*>(x.data());
      To* to = static_cast<To*>(y.data());
      team_.elements(n, [=](std::int64_t first, std::int64_t last) {
#pragma omp simd
        for (std::int64_t i = first; i < last; ++i) to[i] = narrow<To>(wide(from[i]));
      });
    });
  });
}

void CpuOps::add(ConstTensor x, Tensor y) {
  const std::int64_t n = y.elements();
  with_float_type("add", y.dtype(), [&]<class T>(T) {
    const T* from = elements_of<T>("add", x, n);
    T* to = elements_of<T>("add", y, n);
    team_.elements(n, [=](std::int64_t first, std::int64_t last) {
#pragma omp simd
      for (std::int64_t i = first; i < last; ++i) to[i] = narrow<T>(wide(to[i]) + wide(from[i]));
    });
  });
}

void CpuOps::scale(Tensor y, double factor) {
  const std::int64_t n = y.elements();
  with_float_type("scale", y.dtype(), [&]<class T>(T) {
    T* to = elements_of<T>("scale", y, n);
    const auto by = static_cast<decltype(wide(T{}))>(factor);
    team_.elements(n, [=](std::int64_t first, std::int64_t last) {
#pragma omp simd
      for (std::int64_t i = first; i < last; ++i) to[i] = narrow<T>(wide(to[i]) * by);
    });
  });
}

}  // namespace megatron
