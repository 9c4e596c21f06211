#include "cpu/cpu_ops.h"
#include "cpu/sgemm.h"

namespace megatron {

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
  sgemm(args.transpose_a, args.transpose_b, m, n, k, 1.0f, {a.as<float>(), a.stride(0)}, {b.as<float>(), b.stride(0)},
        args.accumulate ? 1.0f : 0.0f, {c.as<float>(), c.stride(0)});
}

}  // namespace megatron
