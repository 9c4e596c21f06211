// sgemm: the one place that calls oneDNN. Single-precision matrix products of raw pointers, on the calling thread
// alone.
#pragma once

#include <cstdint>

namespace megatron {

/// A row-major matrix: element (row, column) is data[row * stride + column].
struct ConstMatrix {
  const float* data;
  std::int64_t stride;
};
struct Matrix {
  float* data;
  std::int64_t stride;
};

/// c = alpha · op(a) · op(b) + beta · c, with c[m, n], op(a)[m, k], op(b)[k, n], op the transpose where asked. Extents
/// may be zero; with beta 0 the old contents of c are not read. Uses one thread whatever OpenMP's environment says,
/// also when several ranks are threads of one process (oneDNN alone would take every core for each of them); several
/// threads of a ThreadTeam may call it at the same time for different c.
void sgemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
           ConstMatrix a, ConstMatrix b, float beta, Matrix c);

}  // namespace megatron
