#include "distributed/parallel/tensor_print.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/core/half.h"
#include "base/core/philox.h"

namespace megatron {

namespace {

/// From -1 to 1, by an element's index.
double coefficient(std::int64_t index) {
  return static_cast<double>(mix64(static_cast<std::uint64_t>(index)) >> 11) * 0x1p-52 - 1;
}

std::uint64_t hash_of(const std::byte* bytes, std::size_t count) {
  std::uint64_t hash = mix64(count);
  for (std::size_t i = 0; i < count; i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min(sizeof word, count - i));
    hash = mix64(hash ^ word);
  }
  return hash;
}

/// The same after each NaN was made the usual one: its sign and its payload depend on who computed it.
template <class T>
std::uint64_t hash_with_one_nan(const std::byte* bytes, std::int64_t elements) {
  std::vector<T> values(static_cast<std::size_t>(elements));
  std::memcpy(values.data(), bytes, values.size() * sizeof(T));
  for (T& value : values) {
    const auto number = static_cast<double>(wide(value));
    if (std::isnan(number)) std::memset(&value, 0xFF, sizeof value);
  }
  return hash_of(reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T));
}

template <class T>
void add_numbers(const std::byte* bytes, std::int64_t elements, TensorPrint& print) {
  for (std::int64_t i = 0; i < elements; ++i) {
    T element;
    std::memcpy(&element, bytes + static_cast<std::size_t>(i) * sizeof element, sizeof element);
    const auto value = static_cast<double>(wide(element));
    const double term = coefficient(i) * value;
    print.product += term;
    print.size += std::abs(term);
    print.zero = print.zero && value == 0;
  }
  print.bits = std::isfinite(print.size) ? hash_of(bytes, static_cast<std::size_t>(elements) * sizeof(T))
                                         : hash_with_one_nan<T>(bytes, elements);
}

TensorPrint print_of(const std::byte* bytes, DType type, std::int64_t elements) {
  TensorPrint print;
  switch (type) {
    case DType::f32: add_numbers<float>(bytes, elements, print); break;
    case DType::f64: add_numbers<double>(bytes, elements, print); break;
    case DType::bf16: add_numbers<BFloat16>(bytes, elements, print); break;
    case DType::f16: add_numbers<Float16>(bytes, elements, print); break;
    case DType::i32: add_numbers<std::int32_t>(bytes, elements, print); break;
    case DType::u8: add_numbers<std::uint8_t>(bytes, elements, print); break;
  }
  return print;
}

}  // namespace

std::vector<TensorPrint> prints_of(const std::byte* bytes, DType type, std::int64_t elements, int parts) {
  const std::int64_t each = elements / parts;
  std::vector<TensorPrint> prints;
  for (int part = 0; part < parts; ++part) {
    prints.push_back(print_of(bytes + static_cast<std::size_t>(part * each) * size_of(type), type, each));
  }
  return prints;
}

TensorPrint print_of_parts(const std::vector<TensorPrint>& parts) {
  TensorPrint whole{.bits = mix64(parts.size())};
  for (const TensorPrint& part : parts) {
    whole.bits = mix64(whole.bits ^ part.bits);
    whole.size += part.size;
    whole.zero = whole.zero && part.zero;
  }
  return whole;
}

TensorPrint print_of_sum(const std::vector<TensorPrint>& terms) {
  TensorPrint sum;
  for (const TensorPrint& term : terms) {
    sum.product += term.product;
    sum.size += term.size;
    sum.zero = sum.zero && term.zero;
  }
  return sum;
}

double roundoff_of(DType type) {
  switch (type) {
    case DType::bf16: return 0x1p-8;
    case DType::f16: return 0x1p-11;
    case DType::f32: return 0x1p-24;
    default: return 0x1p-44;  // products of f64 round more than sums of it
  }
}

}  // namespace megatron
