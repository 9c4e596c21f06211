// Muon's orthogonalisation in double, in the words of its publication: the matrix is transposed where it is tall,
// products are sums over elements.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/tensors.h"

namespace megatron::test {

struct Matrix64 {
  std::int64_t rows, columns;
  std::vector<double> elements = std::vector<double>(static_cast<std::size_t>(rows * columns));

  double& at(std::int64_t i, std::int64_t j) { return elements[static_cast<std::size_t>(i * columns + j)]; }
  double at(std::int64_t i, std::int64_t j) const { return elements[static_cast<std::size_t>(i * columns + j)]; }
};

inline Matrix64 as_matrix64(const Owned<float>& x) {
  return {x.shape()[0], x.shape()[1], as_doubles(x)};
}

inline Matrix64 transposed(const Matrix64& x) {
  Matrix64 y{x.columns, x.rows};
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.columns; ++j) y.at(j, i) = x.at(i, j);
  }
  return y;
}

inline Matrix64 product(const Matrix64& a, const Matrix64& b) {
  Matrix64 c{a.rows, b.columns};
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t k = 0; k < a.columns; ++k) {
      for (std::int64_t j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

inline Matrix64 sum(double p, const Matrix64& x, double q, const Matrix64& y) {
  Matrix64 z = x;
  for (std::size_t i = 0; i < z.elements.size(); ++i) z.elements[i] = p * x.elements[i] + q * y.elements[i];
  return z;
}

inline double norm(const Matrix64& x) {
  double squares = 0;
  for (const double element : x.elements) squares += element * element;
  return std::sqrt(squares);
}

inline Matrix64 zeroth_power(const Matrix64& g) {
  if (g.rows > g.columns) return transposed(zeroth_power(transposed(g)));
  Matrix64 x = sum(1 / (norm(g) + 1e-7), g, 0, g);
  for (int i = 0; i < 5; ++i) {
    const Matrix64 a = product(x, transposed(x));
    x = sum(3.4445, x, 1, product(sum(-4.7750, a, 2.0315, product(a, a)), x));
  }
  return x;
}

}  // namespace megatron::test
