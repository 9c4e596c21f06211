// Matrix products on the team: c is cut into one block for each thread, and each thread multiplies its own. With one
// thread the product is whole.
//
// The blocks' extents decide which of its algorithms oneDNN takes and so the order of additions: the one verb whose
// last bits may change with the number of threads. Its own threads would not help: they come in teams of changing size,
// and wait for each other spinning.
#include "cpu/cpu_ops.h"
#include "cpu/sgemm.h"

namespace megatron {

namespace {

constexpr std::int64_t kBlockUnit = 16;  // blocks start on cache lines and whole vectors
constexpr std::int64_t kSmallProduct = std::int64_t{1}
                                       << 21;  // multiplications that one thread does in 20 microseconds

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

}  // namespace

void CpuOps::matmul(const MatmulArgs& args) {
  const ConstTensor &a = args.a, &b = args.b;
  const Tensor& c = args.c;
  for (const DType type : {a.dtype(), b.dtype(), c.dtype()}) {
    verify(type == DType::f32, ErrorKind::configuration,
           "matmul: the CPU backend has no {}; use precision.compute = \"fp32\" or another run.device", name_of(type));
  }
  internal_check(a.rank() == 2 && b.rank() == 2 && c.rank() == 2, "matmul of tensors that are not matrices");
  const std::int64_t m = c.dim(0), n = c.dim(1), k = a.dim(args.transpose_a ? 0 : 1);
  internal_check(a.dim(args.transpose_a ? 1 : 0) == m, "matmul: rows of op(a) and c differ");
  internal_check(b.dim(args.transpose_b ? 1 : 0) == k, "matmul: columns of op(a) and rows of op(b) differ");
  internal_check(b.dim(args.transpose_b ? 0 : 1) == n, "matmul: columns of op(b) and c differ");
  for (const ConstTensor& x : {a, b, static_cast<const ConstTensor&>(c)}) {
    internal_check(x.dim(1) <= 1 || x.stride(1) == 1, "matmul: the last dimension is not contiguous");
    internal_check(x.stride(0) >= x.dim(1), "matmul: rows overlap");
  }
  const auto multiply = [&](std::int64_t top, std::int64_t bottom, std::int64_t left, std::int64_t right) {
    const float* rows = a.as<float>() + top * (args.transpose_a ? 1 : a.stride(0));
    const float* columns = b.as<float>() + left * (args.transpose_b ? b.stride(0) : 1);
    sgemm(args.transpose_a, args.transpose_b, bottom - top, right - left, k, 1.0f, {rows, a.stride(0)},
          {columns, b.stride(0)}, args.accumulate ? 1.0f : 0.0f,
          {c.as<float>() + top * c.stride(0) + left, c.stride(0)});
  };
  if (team_.threads() == 1 || m * n * k < kSmallProduct) return multiply(0, m, 0, n);
  const Blocks blocks = cut_result(m, n, team_.threads());
  team_.each(blocks.rows * blocks.columns, [&](std::int64_t block, int) {
    const std::int64_t row = block / blocks.columns, column = block % blocks.columns;
    const auto down = [&](std::int64_t i) { return Team::cut(m, kBlockUnit, blocks.rows, i); };
    const auto across = [&](std::int64_t i) { return Team::cut(n, kBlockUnit, blocks.columns, i); };
    multiply(down(row), down(row + 1), across(column), across(column + 1));
  });
}

}  // namespace megatron
