// Products of a few rows with a matrix, c = x · wᵀ, as decoding makes them for one token per prompt: w is read once,
// and asked for in time. An element of c is the same bits whatever other rows and columns are computed with it. On the
// calling thread alone; knows pointers, no tensors.
#pragma once

#include <limits>

#include "backend/cpu/few_rows_tile.h"

namespace megatron::few_rows {

/// The most rows of x: above, blocks of w that stay in cache are worth packing.
inline constexpr std::int64_t kMostRows = 32;

/// How x is cut: into groups of rows that share a tile, and into blocks of elements that stay in the nearest cache.
template <class W>
struct Cut {
  using Kind = KindOf<W>;
  using Element = typename Kind::Element;
  /// w has to be made of the elements that are multiplied first.
  static constexpr bool kWidens = !std::is_same_v<W, Element>;
  /// Up to these rows, w comes no faster from memory than it is multiplied, and is best read in the order it lies in.
  static constexpr std::int64_t kReadsInOrder = 8;
  static constexpr std::int64_t kMostWidened = 1024;

  explicit Cut(std::int64_t rows_in_all)
      : rows(rows_in_all), groups((rows + kTileRows - 1) / kTileRows), depth(std::numeric_limits<std::int64_t>::max()) {
    constexpr std::int64_t kNear = std::int64_t{24} << 10;  // bytes of x
    if (rows > kReadsInOrder) {
      depth = kNear / static_cast<std::int64_t>(sizeof(Element)) / rows / Kind::kElements * Kind::kElements;
    }
    if (kWidens) depth = std::min(depth, kMostWidened);
  }
  std::int64_t first_row(std::int64_t group) const { return rows * group / groups; }
  int rows_of(std::int64_t group) const { return static_cast<int>(first_row(group + 1) - first_row(group)); }
  bool reads_in_order() const { return rows <= kReadsInOrder; }

  std::int64_t rows, groups;
  std::int64_t depth;  ///< elements of a block
};

template <class W>
constexpr std::int64_t padded(std::int64_t k) {
  constexpr std::int64_t unit = KindOf<W>::kElements;
  return (k + unit - 1) / unit * unit;
}

/// Scratch for x, a multiple of a cache line.
template <class W>
constexpr std::size_t packed_bytes(std::int64_t rows, std::int64_t k) {
  return (static_cast<std::size_t>(rows * padded<W>(k)) * sizeof(typename KindOf<W>::Element) + 63) / 64 * 64;
}

/// x in the order in which it is read: block by block, group by group, vector by vector of all rows of the group. Zeros
/// complete the last vectors.
template <class W, class X>
void pack(std::int64_t rows, std::int64_t k, const X* x, std::int64_t x_stride, typename KindOf<W>::Element* to) {
  using Element = typename KindOf<W>::Element;
  constexpr std::int64_t unit = KindOf<W>::kElements;
  const Cut<W> cut(rows);
  for (std::int64_t first = 0; first < k; first += std::min(cut.depth, k - first)) {
    const std::int64_t count = std::min(cut.depth, k - first);
    for (std::int64_t group = 0; group < cut.groups; ++group) {
      for (std::int64_t at = 0; at < count; at += unit) {
        for (std::int64_t row = cut.first_row(group); row < cut.first_row(group + 1); ++row, to += unit) {
          const X* from = x + row * x_stride + first + at;
          const std::int64_t there = std::min(unit, count - at);
          if (there == unit) {
#pragma omp simd
            for (std::int64_t i = 0; i < unit; ++i) to[i] = narrow<Element>(wide(from[i]));
            continue;
          }
          for (std::int64_t i = 0; i < there; ++i) to[i] = narrow<Element>(wide(from[i]));
          for (std::int64_t i = there; i < unit; ++i) to[i] = Element{};
        }
      }
    }
  }
}

/// The product, with x packed.
template <class W, class Result>
class Product {
 public:
  using Kind = KindOf<W>;
  using Element = typename Kind::Element;

  Product(std::int64_t rows, std::int64_t k, const Element* x, const W* w, std::int64_t w_stride, Result* c,
          std::int64_t c_stride, bool accumulate)
      : cut_(rows), k_(k), x_(x), w_(w), w_stride_(w_stride), c_(c), c_stride_(c_stride), accumulate_(accumulate) {}

  void run(std::int64_t n) {
    for (std::int64_t column = 0; column < n; column += kTileColumns) {
      multiply_columns(column, std::min<std::int64_t>(kTileColumns, n - column));
    }
  }

 private:
  /// The columns of c that `columns` rows of w make, at most kTileColumns of them.
  void multiply_columns(std::int64_t column, std::int64_t columns) {
    const Element* x = x_;
    if (k_ == 0) std::fill_n(sums_, cut_.rows * kTileColumns, Lanes{});
    const auto* next = reinterpret_cast<const char*>(w_ + (column + kTileColumns) * w_stride_);
    for (std::int64_t first = 0; first < k_; first += std::min(cut_.depth, k_ - first)) {
      const std::int64_t count = std::min(cut_.depth, k_ - first);
      for (std::int64_t j = 0; j < kTileColumns; ++j) {  // the last one again where there are fewer: its sums go unused
        rows_[j] = w_ + (column + std::min(j, columns - 1)) * w_stride_ + first;
      }
      if (!cut_.reads_in_order()) next = next_block(column, first);
      x = add_block(x, count, first == 0, next);
      next += kTileColumns * count * static_cast<std::int64_t>(sizeof(W));
    }
    finish(column, columns);
  }

  /// The block of w that is multiplied after this one.
  const char* next_block(std::int64_t column, std::int64_t first) const {
    const bool last = first + cut_.depth >= k_;
    return reinterpret_cast<const char*>(last ? w_ + (column + kTileColumns) * w_stride_
                                              : w_ + column * w_stride_ + first + cut_.depth);
  }

  /// Adds the products of the next `count` elements of rows_, or sets sums to them. Returns x after them.
  const Element* add_block(const Element* x, std::int64_t count, bool set, const char* next) {
    const Element* sources[kTileColumns];
    const std::int64_t steps = count / Kind::kElements, rest = count % Kind::kElements;
    for (int j = 0; j < kTileColumns; ++j) {
      if constexpr (kWidens) {
        float* to = widened_ + j * kWidenedStride;
        attention::prefetch(rows_[j] + kTileColumns * w_stride_, static_cast<std::size_t>(count) * sizeof(W));
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) to[i] = wide(rows_[j][i]);
        sources[j] = to;
      } else {
        sources[j] = rows_[j];
      }
    }
    const Element* tails[kTileColumns];
    if (rest > 0) {
      for (int j = 0; j < kTileColumns; ++j) {
        std::copy_n(sources[j] + steps * Kind::kElements, rest, tail_[j]);  // zeros follow, or meet zeros of x
        tails[j] = tail_[j];
      }
    }
    for (std::int64_t group = 0; group < cut_.groups; ++group) {
      const int rows = cut_.rows_of(group);
      Lanes* sums = sums_ + cut_.first_row(group) * kTileColumns;
      add_products<Kind>(rows, x, sources, steps, kWidens ? Ahead{} : ahead_of(group, count, next), set, sums);
      x += rows * steps * Kind::kElements;
      if (rest > 0) {
        add_products<Kind>(rows, x, tails, 1, {}, false, sums);
        x += rows * Kind::kElements;
      }
    }
    return x;
  }

  /// The lines that a group asks for, so that all groups together ask for the next block once, evenly.
  Ahead ahead_of(std::int64_t group, std::int64_t count, const char* next) const {
    constexpr std::int64_t kLine = 64;
    const auto bytes = count * static_cast<std::int64_t>(sizeof(W));
    Ahead ahead;
    if (cut_.reads_in_order()) {
      const std::int64_t lines = (kTileColumns + cut_.groups - 1) / cut_.groups;
      if (group * lines >= kTileColumns) return ahead;
      ahead.lines = static_cast<int>(lines);
      ahead.step = kLine * lines;
      for (int i = 0; i < ahead.lines; ++i) ahead.from[i] = next + group * lines * bytes + kLine * i;
    } else {  // halves of rows, each line twice
      const auto share = [&](std::int64_t i) { return 2 * kTileColumns * i / cut_.groups; };
      ahead.lines = static_cast<int>(share(group + 1) - share(group));
      ahead.step = kLine / 2;
      for (int i = 0; i < ahead.lines; ++i) {
        const std::int64_t half = share(group) + i;
        ahead.from[i] = next + half / 2 * w_stride_ * static_cast<std::int64_t>(sizeof(W)) + half % 2 * bytes / 2;
      }
    }
    return ahead;
  }

  void finish(std::int64_t column, std::int64_t columns) {
    const std::int64_t count = cut_.rows * kTileColumns;
    alignas(64) float values[kSums];
    for (std::int64_t i = 0; i < count; i += kLanes) attention::store(values + i, sums_of(sums_ + i));
    if (columns == kTileColumns && !accumulate_) {
      Result results[kSums];
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) results[i] = narrow<Result>(values[i]);
      for (std::int64_t row = 0; row < cut_.rows; ++row) {
        std::memcpy(c_ + row * c_stride_ + column, results + row * kTileColumns, kTileColumns * sizeof(Result));
      }
      return;
    }
    for (std::int64_t row = 0; row < cut_.rows; ++row) {
      for (std::int64_t j = 0; j < columns; ++j) {
        Result& to = c_[row * c_stride_ + column + j];
        const float sum = values[row * kTileColumns + j];
        to = narrow<Result>(accumulate_ ? wide(to) + sum : sum);
      }
    }
  }

  static constexpr bool kWidens = Cut<W>::kWidens;
  static constexpr std::int64_t kSums = kMostRows * kTileColumns + kLanes;
  static constexpr std::int64_t kWidenedStride = kWidens ? Cut<W>::kMostWidened + 16 : 0;

  Cut<W> cut_;
  std::int64_t k_;
  const Element* x_;
  const W* w_;
  std::int64_t w_stride_;
  Result* c_;
  std::int64_t c_stride_;
  bool accumulate_;
  const W* rows_[kTileColumns] = {};
  Lanes sums_[kSums] = {};
  alignas(64) Element tail_[kTileColumns][Kind::kElements] = {};
  alignas(64) float widened_[kTileColumns * kWidenedStride + 1];
};

/// c[rows, n] = x[rows, k] · w[n, k]ᵀ, added to c if `accumulate`; rows <= kMostRows. `memory`: packed_bytes.
template <class W, class Result>
void multiply(std::int64_t rows, std::int64_t n, std::int64_t k, const W* x, std::int64_t x_stride, const W* w,
              std::int64_t w_stride, Result* c, std::int64_t c_stride, bool accumulate, std::byte* memory) {
  auto* const packed = reinterpret_cast<typename KindOf<W>::Element*>(memory);
  pack<W>(rows, k, x, x_stride, packed);
  Product<W, Result>(rows, k, packed, w, w_stride, c, c_stride, accumulate).run(n);
}

}  // namespace megatron::few_rows
