#include "backend/ops/product_size.h"

namespace megatron {

ProductSize product_size(const MatmulArgs& args) {
  const ConstTensor &a = args.a, &b = args.b;
  const Tensor& c = args.c;
  internal_check(a.rank() == 2 && b.rank() == 2 && c.rank() == 2, "matmul of tensors that are not matrices", a.shape(),
                 b.shape(), c.shape());
  const ProductSize size{c.dim(0), c.dim(1), a.dim(args.transpose_a ? 0 : 1)};
  internal_check(a.dim(args.transpose_a ? 1 : 0) == size.m, "matmul: rows of op(a) and c differ", a.shape(), c.shape());
  internal_check(b.dim(args.transpose_b ? 1 : 0) == size.k, "matmul: columns of op(a) and rows of op(b) differ",
                 a.shape(), b.shape());
  internal_check(b.dim(args.transpose_b ? 0 : 1) == size.n, "matmul: columns of op(b) and c differ", b.shape(),
                 c.shape());
  internal_check(a.dtype() == b.dtype(), "matmul of two dtypes", a.dtype(), b.dtype());
  internal_check(c.dtype() == a.dtype() || c.dtype() == DType::f32, "matmul: c is neither as a and b nor f32",
                 c.dtype(), a.dtype());
  for (const ConstTensor& x : {a, b, static_cast<const ConstTensor&>(c)}) {
    internal_check(x.dim(1) <= 1 || x.stride(1) == 1, "matmul: the last dimension is not contiguous", x.shape(),
                   x.stride(1));
    internal_check(x.stride(0) >= x.dim(1), "matmul: rows overlap", x.stride(0), x.dim(1));
  }
  return size;
}

}  // namespace megatron
