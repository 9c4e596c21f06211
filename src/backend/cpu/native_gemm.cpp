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
/// in parts, so that the tiles of a few columns stay in the nearest cache, those of a slice and its sums in the next.
constexpr ProductSize kBlock{1536, 768, 3072};
constexpr std::int64_t kSlice = 256, kPart = 384;

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

/// How a block's depth is cut into parts.
EqualParts parts_of(Range depth) {
  return {depth.size(), kPart, kDepth};
}

/// Where the memory is cut, in bytes: tiles of rows, tiles of columns, sums.
struct Layout {
  Layout(ProductSize size, bool has_sums) {
    const std::int64_t m = std::min(size.m, kBlock.m), n = round_up(std::min(size.n, kBlock.n), kWidth),
                       k = round_up(std::min(size.k, kBlock.k), kDepth);
    columns = round_up(std::min(m, kSlice), kWidth) * std::min(k, kPart) * static_cast<std::int64_t>(sizeof(BFloat16));
    sums = columns + n * k * static_cast<std::int64_t>(sizeof(BFloat16));
    bytes = sums + (has_sums ? m * n * static_cast<std::int64_t>(sizeof(float)) : 0);
  }
  std::int64_t columns, sums, bytes;
};

/// Sums over several parts of the depth that c is too narrow for.
bool needs_sums(std::int64_t k, DType result) {
  return k > kPart && result != DType::f32;
}

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
    const Layout layout(size, needs_sums(size.k, DTypeOf<Result>::value));
    rows_ = reinterpret_cast<BFloat16*>(memory);
    columns_ = reinterpret_cast<BFloat16*>(memory + layout.columns);
    sums_ = reinterpret_cast<float*>(memory + layout.sums);
    sums_stride_ = round_up(std::min(size.n, kBlock.n), kWidth);
  }

  void run() {
    const EqualParts down(size_.m, kBlock.m, kSlice), across(size_.n, kBlock.n, 3 * 2 * kWidth),
        inner(size_.k, kBlock.k, kPart);
    for (std::int64_t i = 0; i < down.size(); ++i) {
      for (std::int64_t j = 0; j < across.size(); ++j) {
        for (std::int64_t part = 0; part < inner.size(); ++part) add_block(down[i], across[j], inner[part]);
      }
    }
  }

 private:
  /// Adds the products of this depth to a block of c.
  void add_block(Range down, Range across, Range depth) {
    const EqualParts parts = parts_of(depth);
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
    alignas(64) float sums[native::kSums];
    for (std::int64_t j = 0; j < column_panels; j += kernel_.columns) {
      panels.b = columns + j * panel;
      panels.columns = std::min(kernel_.columns, column_panels - j);
      for (std::int64_t i = 0; i < row_panels; i += kernel_.rows) {
        panels.a = rows_ + i * panel;
        panels.rows = std::min(kernel_.rows, row_panels - i);
        const std::int64_t stride = panels.columns * kWidth;
        kernel_.multiply(panels, {sums, stride}, false);
        for (std::int64_t tile = 0; tile < panels.rows * panels.columns; ++tile) {
          const std::int64_t row = tile / panels.columns * kWidth, column = tile % panels.columns * kWidth;
          const std::int64_t down = i * kWidth + row, right = j * kWidth + column;
          store({sums + row * stride + column, stride}, {rows.first + down, rows.last},
                {across.first + right, across.last}, depth, sums_ + (sums_row + down) * sums_stride_ + right);
        }
      }
    }
  }

  /// One tile of sums, of the first of these rows and columns. `kept`: where sums are kept from part to part, if c
  /// cannot.
  void store(native::ConstSums sums, Range rows, Range columns, Range depth, float* kept) {
    Result* to = c_ + rows.first * c_stride_ + columns.first;
    const bool first = depth.first == 0, last = depth.last == size_.k;
    if constexpr (!std::is_same_v<Result, float>) {
      const Result* before = accumulate_ ? to : nullptr;
      if (!first || !last) {
        if (first) {
          native::store_sums(sums, rows.size(), columns.size(), before, c_stride_, kept, sums_stride_);
        } else if (last) {
          native::store_sums(sums, rows.size(), columns.size(), kept, sums_stride_, to, c_stride_);
        } else {
          native::store_sums(sums, rows.size(), columns.size(), kept, sums_stride_, kept, sums_stride_);
        }
        return;
      }
    }
    const Result* before = accumulate_ || !first ? to : nullptr;
    native::store_sums(sums, rows.size(), columns.size(), before, c_stride_, to, c_stride_);
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

}  // namespace

std::size_t native_gemm_bytes(ProductSize size, DType result) {
  return static_cast<std::size_t>(round_up(Layout(size, needs_sums(size.k, result)).bytes, 64));
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

}  // namespace megatron
