// Matrix products on the team: c is cut into one block for each thread, and each thread multiplies its own. With one
// thread the product is whole.
//
// The blocks' extents decide which of its algorithms oneDNN takes and so the order of additions: the one verb whose
// last bits may change with the number of threads, though not those of native products of bf16. oneDNN's own threads
// would not help: they come in teams of changing size, and wait for each other spinning.
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/few_rows.h"
#include "backend/cpu/native_gemm.h"
#include "backend/cpu/sgemm.h"
#include "backend/cpu/widening_gemm.h"
#include "backend/cpu/working_memory.h"
#include "backend/ops/arguments.h"
#include "backend/ops/product_size.h"

namespace megatron {

namespace {

constexpr std::int64_t kBlockUnit = 16;  // blocks start on cache lines and whole vectors
constexpr std::int64_t kSmallProduct = std::int64_t{1}
                                       << 21;                 // multiplications that one thread does in 20 microseconds
constexpr std::int64_t kSmallMatrix = std::int64_t{1} << 17;  // weights that one thread reads in as long

struct Blocks {
  std::int64_t rows, columns;
};

/// How many blocks of rows and of columns: the product of both is `threads`, and what a thread reads, its rows of
/// op(a) and columns of op(b), is least.
Blocks cut_result(std::int64_t m, std::int64_t n, std::int64_t threads) {
  Blocks best{threads, 1};
  std::int64_t least = 0;
  for (std::int64_t rows = threads; rows >= 1; --rows) {
    if (threads % rows != 0) continue;
    const std::int64_t columns = threads / rows;
    const std::int64_t reads = (m + rows - 1) / rows + (n + columns - 1) / columns;
    if (least == 0 || reads < least) {
      best = {rows, columns};
      least = reads;
    }
  }
  return best;
}

static_assert(few_rows::kMostRows <= kFewRows && few_rows::kMostRows <= kMostNativeRows);

/// Decoding's products. f32 weights that stay in cache are oneDNN's.
bool has_few_rows(const MatmulArgs& args, ProductSize size) {
  if (args.transpose_a || !args.transpose_b || size.m == 0 || size.m > few_rows::kMostRows) return false;
  return args.a.dtype() != DType::f32 || size.n * size.k >= kSmallMatrix;
}

/// Scratch of one thread.
std::size_t share_of_thread(const MatmulArgs& args, ProductSize size) {
  std::size_t bytes = 0;
  with_activation_type("matmul", args.a.dtype(), [&]<class T>(T) {
    if (has_few_rows(args, size)) {
      bytes = few_rows::packed_bytes<T>(size.m, size.k);
      // The larger of both, here and below, so that a plan holds on every processor.
      if (args.a.dtype() == DType::bf16) bytes = std::max(bytes, native_few_rows_bytes(size));
    } else if constexpr (kHalf<T>) {
      bytes = widening_gemm_bytes(size);
      if (args.a.dtype() == DType::bf16) bytes = std::max(bytes, native_gemm_bytes(size, args.c.dtype()));
    }
  });
  return bytes;
}

/// All rows of columns [left, left + columns) of c. On processors with matrix units dot products of pairs are too slow
/// for 16 rows and more; an element has the same bits with any number of rows, so that fewer use the units, too.
template <class T>
void multiply_few_rows(const MatmulArgs& args, HalfProducts products, ProductSize size, std::int64_t left,
                       std::int64_t columns, std::byte* memory) {
  const std::int64_t a_stride = args.a.stride(0), b_stride = args.b.stride(0), c_stride = args.c.stride(0);
  const T *rows = args.a.as<T>(), *weights = args.b.as<T>() + left * b_stride;
  const auto multiply = [&](auto* c) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (products == HalfProducts::amx_bf16) {
        return native_few_rows(products, {size.m, columns, size.k}, {rows, a_stride, false}, {weights, b_stride, true},
                               c + left, c_stride, args.accumulate, memory);
      }
    }
    few_rows::multiply(size.m, columns, size.k, rows, a_stride, weights, b_stride, c + left, c_stride, args.accumulate,
                       memory);
  };
  if constexpr (kHalf<T>) {
    if (args.c.dtype() != DType::f32) return multiply(args.c.as<T>());
  }
  multiply(args.c.as<float>());
}

/// The rows [top, bottom) and columns [left, right) of c. `memory`: scratch of this thread, for 16-bit inputs.
template <class T>
void multiply_block(const MatmulArgs& args, HalfProducts products, ProductSize block, std::int64_t top,
                    std::int64_t left, std::byte* memory) {
  const T* rows = args.a.as<T>() + top * (args.transpose_a ? 1 : args.a.stride(0));
  const T* columns = args.b.as<T>() + left * (args.transpose_b ? args.b.stride(0) : 1);
  const std::int64_t a_stride = args.a.stride(0), b_stride = args.b.stride(0), c_stride = args.c.stride(0);
  const std::int64_t at = top * c_stride + left;
  if constexpr (std::is_same_v<T, float>) {
    sgemm(args.transpose_a, args.transpose_b, block.m, block.n, block.k, 1.0f, {rows, a_stride}, {columns, b_stride},
          args.accumulate ? 1.0f : 0.0f, {args.c.as<float>() + at, c_stride});
  } else {
    const ProductInput<T> a{rows, a_stride, args.transpose_a}, b{columns, b_stride, args.transpose_b};
    const auto multiply = [&](auto* c) {
      if constexpr (std::is_same_v<T, BFloat16>) {
        if (products != HalfProducts::widened) {
          return native_gemm(products, block, a, b, c, c_stride, args.accumulate, memory);
        }
      }
      widening_gemm(block, a, b, c, c_stride, args.accumulate, reinterpret_cast<float*>(memory));
    };
    if (args.c.dtype() == DType::f32) {
      multiply(args.c.as<float>() + at);
    } else {
      multiply(args.c.as<T>() + at);
    }
  }
}

}  // namespace

std::size_t matmul_bytes(const MatmulArgs& args, int threads) {
  return share_of_thread(args, product_size(args)) * static_cast<std::size_t>(threads);
}

void CpuOps::matmul(const MatmulArgs& args) {
  const ProductSize size = product_size(args);
  const std::int64_t m = size.m, n = size.n, k = size.k;
  const std::size_t share = share_of_thread(args, size);
  const bool few = has_few_rows(args, size);
  const bool whole = team_.threads() == 1 || (few ? n * k < kSmallMatrix : m * n * k < kSmallProduct);
  const Blocks blocks = whole ? Blocks{1, 1} : few ? Blocks{1, team_.threads()} : cut_result(m, n, team_.threads());
  with_activation_type("matmul", args.a.dtype(), [&]<class T>(T) {
    std::byte* memory = scratch(share * static_cast<std::size_t>(team_.threads()));
    team_.each(blocks.rows * blocks.columns, [&](std::int64_t block, int thread) {
      const std::int64_t row = block / blocks.columns, column = block % blocks.columns;
      const auto down = [&](std::int64_t i) { return ThreadTeam::cut(m, kBlockUnit, blocks.rows, i); };
      const auto across = [&](std::int64_t i) { return ThreadTeam::cut(n, kBlockUnit, blocks.columns, i); };
      const ProductSize part{down(row + 1) - down(row), across(column + 1) - across(column), k};
      std::byte* const own = memory + share * static_cast<std::size_t>(thread);
      if (few) return multiply_few_rows<T>(args, products_, size, across(column), part.n, own);
      multiply_block<T>(args, products_, part, down(row), across(column), own);
    });
  });
}

}  // namespace megatron
