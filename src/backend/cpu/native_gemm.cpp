#include "backend/cpu/native_gemm.h"

#include <algorithm>

#include "backend/cpu/native_tiles.h"
#include "backend/cpu/thread_team.h"

namespace megatron {

namespace {

using native::kDepth;
using native::kTileElements;
using native::kWidth;
using wide_tiles::Range;

constexpr std::int64_t round_up(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

/// Largest extents of a block, whose columns are packed at once. Its rows are packed in slices, and the depth of these
/// in parts, so that the tiles of a slice and its sums stay in the second cache. Parts are short where c keeps the sums
/// between them, so that the tiles of a few columns stay in the first, and long where scratch keeps them, which costs
/// more.
constexpr ProductSize kBlock{1536, 768, 3072};
constexpr std::int64_t kSlice = 256, kShortPart = 384, kLongPart = 768;

constexpr std::int64_t longest_part(DType result) {
  return result == DType::f32 ? kShortPart : kLongPart;
}

/// [0, count) in equal parts of at most `largest`, of whole units but for the last; one part of nothing.
class EqualParts {
 public:
  EqualParts(std::int64_t count, std::int64_t largest, std::int64_t unit)
      : count_(count), unit_(unit), parts_(std::max<std::int64_t>(1, (count + largest - 1) / largest)) {}
  std::int64_t size() const { return parts_; }
  Range operator[](std::int64_t i) const { return {cut(i), cut(i + 1)}; }

 private:
  std::int64_t cut(std::int64_t i) const { return ThreadTeam::cut(count_, unit_, parts_, i); }
  std::int64_t count_, unit_, parts_;
};

/// Whether scratch keeps sums between parts of the depth: where c is too narrow.
bool needs_sums(std::int64_t k, DType result) {
  return result != DType::f32 && k > longest_part(result);
}

/// Where the memory is cut, in bytes: tiles of rows, tiles of columns, sums in whole tiles.
struct Layout {
  Layout(ProductSize size, DType result) {
    const std::int64_t m = std::min(size.m, kBlock.m), n = round_up(std::min(size.n, kBlock.n), kWidth),
                       k = round_up(std::min(size.k, kBlock.k), kDepth);
    columns = round_up(std::min(m, kSlice), kWidth) * std::min(k, longest_part(result)) *
              static_cast<std::int64_t>(sizeof(BFloat16));
    sums = columns + n * k * static_cast<std::int64_t>(sizeof(BFloat16));
    bytes =
        sums + (needs_sums(size.k, result) ? round_up(m, kWidth) * n * static_cast<std::int64_t>(sizeof(float)) : 0);
  }
  std::int64_t columns, sums, bytes;
};

/// Rows or columns `outer` of an input, with elements `depth`.
native::Source<BFloat16> source_of(const ProductInput<BFloat16>& input, bool outer_is_row, Range outer, Range depth) {
  const std::int64_t row = outer_is_row ? outer.first : depth.first, column = outer_is_row ? depth.first : outer.first;
  return {input.data + row * input.stride + column, input.stride, outer_is_row, outer.size(), depth.size()};
}

template <class Result>
class Product {
 public:
  Product(const native::Kernel& kernel, ProductSize size, ProductInput<BFloat16> a, ProductInput<BFloat16> b, Result* c,
          std::int64_t c_stride, bool accumulate, std::byte* memory)
      : kernel_(kernel), size_(size), a_(a), b_(b), c_(c), c_stride_(c_stride), accumulate_(accumulate) {
    const Layout layout(size, DTypeOf<Result>::value);
    rows_ = reinterpret_cast<BFloat16*>(memory);
    columns_ = reinterpret_cast<BFloat16*>(memory + layout.columns);
    sums_ = reinterpret_cast<float*>(memory + layout.sums);
    sums_stride_ = round_up(std::min(size.n, kBlock.n), kWidth);
  }

  void run() {
    const EqualParts down(size_.m, kBlock.m, kSlice), across(size_.n, kBlock.n, 3 * 2 * kWidth),
        inner(size_.k, kBlock.k, kLongestPart);
    for (std::int64_t i = 0; i < down.size(); ++i) {
      for (std::int64_t j = 0; j < across.size(); ++j) {
        for (std::int64_t part = 0; part < inner.size(); ++part) add_block(down[i], across[j], inner[part]);
      }
    }
  }

 private:
  static constexpr std::int64_t kLongestPart = longest_part(DTypeOf<Result>::value);

  /// Adds the products of this depth to a block of c.
  void add_block(Range down, Range across, Range depth) {
    const EqualParts parts(depth.size(), kLongestPart, kDepth);
    for (std::int64_t part = 0; part < parts.size(); ++part) {
      const Range own{depth.first + parts[part].first, depth.first + parts[part].last};
      pack_columns(source_of(b_, b_.transposed, across, own), columns_ + tiles_before(across.size(), parts[part]));
    }
    for (std::int64_t top = down.first; top < down.last; top += kSlice) {
      const Range rows{top, std::min(top + kSlice, down.last)};
      for (std::int64_t part = 0; part < parts.size(); ++part) {
        const Range own{depth.first + parts[part].first, depth.first + parts[part].last};
        pack_rows(source_of(a_, !a_.transposed, rows, own), rows_);
        multiply_slice(rows, across, own, top - down.first, columns_ + tiles_before(across.size(), parts[part]));
      }
    }
  }

  /// Elements of the packed columns of the parts before this one, which have whole tiles.
  static std::int64_t tiles_before(std::int64_t columns, Range part) { return round_up(columns, kWidth) * part.first; }

  /// rows: of the product, the first of them the block's row `sums_row`.
  void multiply_slice(Range rows, Range across, Range depth, std::int64_t sums_row, const BFloat16* columns) {
    const std::int64_t panel = native::tiles_of(depth.size()) * kTileElements;
    native::Panels panels{.a = rows_,
                          .b = columns,
                          .a_stride = panel,
                          .b_stride = panel,
                          .rows = 0,
                          .columns = 0,
                          .depth = native::tiles_of(depth.size())};
    const std::int64_t row_panels = native::panels_of(rows.size()), column_panels = native::panels_of(across.size());
    for (std::int64_t j = 0; j < column_panels; j += kernel_.columns) {
      panels.b = columns + j * panel;
      panels.columns = std::min(kernel_.columns, column_panels - j);
      for (std::int64_t i = 0; i < row_panels; i += kernel_.rows) {
        panels.a = rows_ + i * panel;
        panels.rows = std::min(kernel_.rows, row_panels - i);
        const std::int64_t down = i * kWidth, right = j * kWidth;
        multiply_panels(panels, {rows.first + down, rows.last}, {across.first + right, across.last}, depth,
                        {sums_ + (sums_row + down) * sums_stride_ + right, sums_stride_});
      }
    }
  }

  /// Panels that begin with these rows and columns. `kept`: where their sums stay from part to part of the depth if c
  /// is too narrow. A part continues the sum of those before it; c's own numbers are added to that of the first.
  void multiply_panels(const native::Panels& panels, Range rows, Range columns, Range depth, native::Sums kept) {
    const bool first = depth.first == 0, last = depth.last == size_.k;
    Result* to = c_ + rows.first * c_stride_ + columns.first;
    const Result* before = first && accumulate_ ? to : nullptr;
    alignas(64) float memory[native::kSums];
    const native::Sums sums{memory, panels.columns * kWidth};
    const ProductSize cut{std::min(rows.size(), panels.rows * kWidth),
                          std::min(columns.size(), panels.columns * kWidth), 0};
    if (last || std::is_same_v<Result, float>) fetch(to, cut);
    if constexpr (std::is_same_v<Result, float>) {
      const bool whole = cut.m == panels.rows * kWidth && cut.n == panels.columns * kWidth;
      if (whole && before == nullptr) return kernel_.multiply(panels, {to, c_stride_}, !first);
      if (!first) {
        for (std::int64_t row = 0; row < cut.m; ++row)
          std::copy_n(to + row * c_stride_, cut.n, memory + row * sums.stride);
      }
      kernel_.multiply(panels, sums, !first);
      store({sums.data, sums.stride}, cut, before, to, c_stride_);
    } else if (first && (last || before != nullptr)) {
      kernel_.multiply(panels, sums, false);
      if (last) store({sums.data, sums.stride}, cut, before, to, c_stride_);
      if (!last) store({sums.data, sums.stride}, cut, before, kept.data, kept.stride);
    } else {
      kernel_.multiply(panels, kept, !first);
      if (last) store({kept.data, kept.stride}, cut, before, to, c_stride_);
    }
  }

  /// Prefetches the part of c that the product writes.
  void fetch(const Result* to, ProductSize cut) const {
    constexpr std::int64_t kLine = 64 / sizeof(Result);
    for (std::int64_t row = 0; row < cut.m; ++row) {
      for (std::int64_t column = 0; column < cut.n; column += kLine) {
        __builtin_prefetch(to + row * c_stride_ + column, 1);
      }
    }
  }

  /// to [cut.m, cut.n] = sums, or before + sums; `before` lies in c.
  template <class To>
  void store(native::ConstSums sums, ProductSize cut, const Result* before, To* to, std::int64_t to_stride) const {
    for (std::int64_t row = 0; row < cut.m; row += kWidth) {
      for (std::int64_t column = 0; column < cut.n; column += kWidth) {
        native::store_sums({sums.data + row * sums.stride + column, sums.stride}, cut.m - row, cut.n - column,
                           before != nullptr ? before + row * c_stride_ + column : nullptr, c_stride_,
                           to + row * to_stride + column, to_stride);
      }
    }
  }

  const native::Kernel& kernel_;
  ProductSize size_;
  ProductInput<BFloat16> a_, b_;
  Result* c_;
  std::int64_t c_stride_;
  bool accumulate_;
  BFloat16 *rows_, *columns_;
  float* sums_;
  std::int64_t sums_stride_;
};

/// Depth of one call of the kernel, which prefetches the tiles of the next.
constexpr std::int64_t kFewRowsDepth = 8 * kDepth;

/// A few rows of a by all rows of b, as tiles of b by columns of a: sums are those of cᵀ.
template <class Result>
class FewRows {
 public:
  FewRows(const native::Kernel& kernel, ProductSize size, ProductInput<BFloat16> a, ProductInput<BFloat16> b, Result* c,
          std::int64_t c_stride, bool accumulate, std::byte* memory)
      : kernel_(kernel), size_(size), b_(b), c_(c), c_stride_(c_stride), accumulate_(accumulate) {
    edge_ = reinterpret_cast<BFloat16*>(memory);
    columns_ = edge_ + native::kMostRows * kWidth * kFewRowsDepth;
    pack_columns(source_of(a, true, {0, size.m}, {0, size.k}), columns_);
  }

  void run() {
    const std::int64_t step = kernel_.rows * kWidth;
    const EqualParts parts(size_.k, kFewRowsDepth, kDepth);
    for (std::int64_t first = 0; first < size_.n; first += step) {
      const Range rows{first, std::min(first + step, size_.n)};
      for (std::int64_t part = 0; size_.k > 0 && part < parts.size(); ++part) add_products(rows, parts[part]);
      store(rows);
    }
  }

 private:
  void add_products(Range rows, Range depth) {
    const std::int64_t tiles = native::tiles_of(depth.size());
    native::Panels panels{.a = b_.data + rows.first * b_.stride + depth.first,
                          .b = columns_ + depth.first / kDepth * kTileElements,
                          .a_stride = kWidth * b_.stride,
                          .b_stride = native::tiles_of(size_.k) * kTileElements,
                          .rows = native::panels_of(rows.size()),
                          .columns = native::panels_of(size_.m),
                          .depth = tiles,
                          .a_row = b_.stride,
                          .a_tile = kDepth};
    panels.a_next = depth.last < size_.k ? panels.a + depth.size() : b_.data + rows.last * b_.stride;
    if (rows.size() % kWidth != 0 || depth.size() % kDepth != 0) {
      pack_rows(source_of(b_, true, rows, depth), edge_);
      panels = {.a = edge_,
                .b = panels.b,
                .a_stride = tiles * kTileElements,
                .b_stride = panels.b_stride,
                .rows = panels.rows,
                .columns = panels.columns,
                .depth = tiles};
    }
    kernel_.multiply(panels, {sums_, stride()}, depth.first > 0);
  }

  std::int64_t stride() const { return native::panels_of(size_.m) * kWidth; }

  void store(Range rows) {
    if (size_.k == 0) std::fill_n(sums_, native::kSums, 0.0f);
    for (std::int64_t row = 0; row < rows.size(); row += kWidth) {
      const std::int64_t count = std::min(kWidth, rows.size() - row);
      for (std::int64_t column = 0; column < size_.m; column += kWidth) {
        const float* const tile = sums_ + row * stride() + column;
        Result* const to = c_ + column * c_stride_ + rows.first + row;
        const std::int64_t columns = std::min(kWidth, size_.m - column);
        if (!accumulate_) {
          native::store_transposed({tile, stride()}, count, columns, 1, to, c_stride_);
          continue;
        }
        for (std::int64_t i = 0; i < columns; ++i) {
          for (std::int64_t j = 0; j < count; ++j) {
            Result& element = to[i * c_stride_ + j];
            element = narrow<Result>(wide(element) + tile[j * stride() + i]);
          }
        }
      }
    }
  }

  const native::Kernel& kernel_;
  ProductSize size_;
  ProductInput<BFloat16> b_;
  Result* c_;
  std::int64_t c_stride_;
  bool accumulate_;
  BFloat16 *edge_, *columns_;  // tiles of b that are not whole; all of a
  alignas(64) float sums_[native::kSums];
};

}  // namespace

std::size_t native_few_rows_bytes(ProductSize size) {
  const std::int64_t elements =
      native::kMostRows * kWidth * kFewRowsDepth + native::panels_of(size.m) * native::tiles_of(size.k) * kTileElements;
  return static_cast<std::size_t>(elements) * sizeof(BFloat16);
}

template <class Result>
void native_few_rows(HalfProducts products, ProductSize size, ProductInput<BFloat16> a, ProductInput<BFloat16> b,
                     Result* c, std::int64_t c_stride, bool accumulate, std::byte* memory) {
  const native::Kernel& kernel = native_kernel(products);
  internal_check(size.m <= std::min(kMostNativeRows, kernel.columns * kWidth), "native_few_rows of too many rows",
                 size.m);
  kernel.begin();
  FewRows<Result>(kernel, size, a, b, c, c_stride, accumulate, memory).run();
  kernel.end();
}

std::size_t native_gemm_bytes(ProductSize size, DType result) {
  return static_cast<std::size_t>(round_up(Layout(size, result).bytes, 64));
}

const native::Kernel& native_kernel(HalfProducts products) {
  internal_check(products != HalfProducts::widened, "native products of a processor without them");
  return products == HalfProducts::amx_bf16 ? native::amx_kernel() : native::avx512_kernel();
}

template <class Result>
void native_gemm(HalfProducts products, ProductSize size, ProductInput<BFloat16> a, ProductInput<BFloat16> b, Result* c,
                 std::int64_t c_stride, bool accumulate, std::byte* memory) {
  const native::Kernel& kernel = native_kernel(products);
  kernel.begin();
  Product<Result>(kernel, size, a, b, c, c_stride, accumulate, memory).run();
  kernel.end();
}

template void native_gemm(HalfProducts, ProductSize, ProductInput<BFloat16>, ProductInput<BFloat16>, float*,
                          std::int64_t, bool, std::byte*);
template void native_gemm(HalfProducts, ProductSize, ProductInput<BFloat16>, ProductInput<BFloat16>, BFloat16*,
                          std::int64_t, bool, std::byte*);

template void native_few_rows(HalfProducts, ProductSize, ProductInput<BFloat16>, ProductInput<BFloat16>, float*,
                              std::int64_t, bool, std::byte*);
template void native_few_rows(HalfProducts, ProductSize, ProductInput<BFloat16>, ProductInput<BFloat16>, BFloat16*,
                              std::int64_t, bool, std::byte*);

}  // namespace megatron
