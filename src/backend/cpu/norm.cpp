#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/arguments.h"

namespace megatron {

namespace {

/// Computations in addition to the normalised row: LayerNorm centers, RMSNorm does not; either may have a beta.
template <bool centered_, bool with_beta_>
struct Kind {
  static constexpr bool centered = centered_, with_beta = with_beta_;
};

template <class Body>
void with_kind(bool centered, bool with_beta, const Body& body) {
  if (centered) {
    with_beta ? body(Kind<true, true>()) : body(Kind<true, false>());
  } else {
    with_beta ? body(Kind<false, true>()) : body(Kind<false, false>());
  }
}

struct Statistics {
  float mean, rstd;
};

template <bool centered, class T>
Statistics statistics_of(const T* x, std::int64_t columns, float epsilon) {
  const float reciprocal = 1.0f / static_cast<float>(columns);
  float square_sum = 0;
  if constexpr (!centered) {
#pragma omp simd reduction(+ : square_sum)
    for (std::int64_t i = 0; i < columns; ++i) square_sum += wide(x[i]) * wide(x[i]);
    return {0.0f, 1.0f / std::sqrt(square_sum * reciprocal + epsilon)};
  }
  // The variance from deviations, not from E[x²] - E[x]²: a common offset of a row must not cost digits. The first
  // mean's own rounding is put right by the mean of the deviations from it.
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < columns; ++i) sum += wide(x[i]);
  const float first_mean = sum * reciprocal;
  float deviation_sum = 0;
#pragma omp simd reduction(+ : deviation_sum, square_sum)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float deviation = wide(x[i]) - first_mean;
    deviation_sum += deviation;
    square_sum += deviation * deviation;
  }
  const float correction = deviation_sum * reciprocal;
  const float variance = std::max(square_sum * reciprocal - correction * correction, 0.0f);
  return {first_mean + correction, 1.0f / std::sqrt(variance + epsilon)};
}

/// x normalised; the mean of an RMSNorm is not looked at.
template <bool centered>
float normal(float x, Statistics row) {
  return centered ? (x - row.mean) * row.rstd : x * row.rstd;
}

template <class KindOf, class T>
void normalize_row(const T* x, const T* gamma, const T* beta, Statistics row, T* y, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    const float scaled = normal<KindOf::centered>(wide(x[i]), row) * wide(gamma[i]);
    y[i] = narrow<T>(KindOf::with_beta ? scaled + wide(beta[i]) : scaled);
  }
}

template <class KindOf, class T>
void forward(const ThreadTeam& team, const LayerNormForwardArgs& args) {
  const RowsOf size(args.x);
  const std::int64_t columns = size.columns;
  const auto x = rows_of<T>("layer_norm_forward", args.x, size);
  const T* gamma = elements_of<T>("layer_norm_forward", args.gamma, columns);
  const T* beta = optional_elements_of<T>("layer_norm_forward", args.beta, columns);
  const auto y = rows_of<T>("layer_norm_forward", args.y, size);
  float* means = KindOf::centered ? elements_of<float>("layer_norm_forward", args.mean, size.rows) : nullptr;
  float* rstds = elements_of<float>("layer_norm_forward", args.rstd, size.rows);
  team.rows(size.rows, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const Statistics statistics = statistics_of<KindOf::centered>(x[row], columns, args.epsilon);
      normalize_row<KindOf>(x[row], gamma, beta, statistics, y[row], columns);
      if constexpr (KindOf::centered) means[row] = statistics.mean;
      rstds[row] = statistics.rstd;
    }
  });
}

/// The two row sums that the input gradient needs.
struct BackwardSums {
  float gradient, gradient_times_normal;
};

// Separate from add_parameter_gradients() on purpose. Several threads divide the rows among them here and the columns
// there, while a single thread could do both in one loop; but a compiler may sum in another order in that loop, and the
// bits would then depend on the number of threads.
template <class KindOf, class T>
BackwardSums backward_sums(const T* dy, const T* x, const T* gamma, Statistics row, std::int64_t columns) {
  float sum = 0, product_sum = 0;
#pragma omp simd reduction(+ : sum, product_sum)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float gradient = wide(dy[i]) * wide(gamma[i]);
    if constexpr (KindOf::centered) sum += gradient;
    product_sum += gradient * normal<KindOf::centered>(wide(x[i]), row);
  }
  return {sum, product_sum};
}

template <class KindOf, class T>
void add_parameter_gradients(const T* dy, const T* x, Statistics row, float* dgamma, float* dbeta,
                             std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    dgamma[i] += wide(dy[i]) * normal<KindOf::centered>(wide(x[i]), row);
    if constexpr (KindOf::with_beta) dbeta[i] += wide(dy[i]);
  }
}

template <bool centered, class T, bool with_residual>
void input_gradient_row(const T* dy, const T* x, const T* gamma, const T* residual_gradient, Statistics row,
                        BackwardSums sums, T* dx, std::int64_t columns) {
  const float reciprocal = 1.0f / static_cast<float>(columns);
  const float mean_gradient = sums.gradient * reciprocal, mean_product = sums.gradient_times_normal * reciprocal;
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    float gradient = wide(dy[i]) * wide(gamma[i]);
    if constexpr (centered) gradient -= mean_gradient;
    gradient = row.rstd * (gradient - normal<centered>(wide(x[i]), row) * mean_product);
    dx[i] = narrow<T>(with_residual ? wide(residual_gradient[i]) + gradient : gradient);
  }
}

template <class KindOf, class T>
void backward(const ThreadTeam& team, const LayerNormBackwardArgs& args) {
  const RowsOf size(args.x);
  const std::int64_t columns = size.columns;
  const auto dy = rows_of<T>("layer_norm_backward", args.dy, size), x = rows_of<T>("layer_norm_backward", args.x, size);
  const T* gamma = elements_of<T>("layer_norm_backward", args.gamma, columns);
  const float* means = KindOf::centered ? elements_of<float>("layer_norm_backward", args.mean, size.rows) : nullptr;
  const float* rstds = elements_of<float>("layer_norm_backward", args.rstd, size.rows);
  const bool with_residual = !args.residual_gradient.empty();
  const auto residual =
      with_residual ? rows_of<T>("layer_norm_backward", args.residual_gradient, size) : StridedRows<const T>();
  const auto dx = rows_of<T>("layer_norm_backward", args.dx, size);
  float* dgamma = elements_of<float>("layer_norm_backward", args.dgamma, columns);
  float* dbeta = optional_elements_of<float>("layer_norm_backward", args.dbeta, columns);
  const auto input_gradient =
      with_residual ? input_gradient_row<KindOf::centered, T, true> : input_gradient_row<KindOf::centered, T, false>;
  const auto statistics = [&](std::int64_t row) { return Statistics{KindOf::centered ? means[row] : 0, rstds[row]}; };
  const auto add_columns = [&](std::int64_t row, std::int64_t first, std::int64_t last) {
    add_parameter_gradients<KindOf>(dy[row] + first, x[row] + first, statistics(row), dgamma + first,
                                    dbeta ? dbeta + first : nullptr, last - first);
  };
  const auto differentiate = [&](std::int64_t row) {
    const BackwardSums sums = backward_sums<KindOf>(dy[row], x[row], gamma, statistics(row), columns);
    input_gradient(dy[row], x[row], gamma, residual[row], statistics(row), sums, dx[row], columns);
  };
  if (!team.worth(size.elements())) {
    for (std::int64_t row = 0; row < size.rows; ++row) {
      add_columns(row, 0, columns);  // first: dx may lie on dy
      differentiate(row);
    }
    return;
  }
  team.columns(size.rows, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = 0; row < size.rows; ++row) add_columns(row, first, last);
  });
  team.rows(size.rows, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) differentiate(row);
  });
}

}  // namespace

void CpuOps::layer_norm_forward(const LayerNormForwardArgs& args) {
  with_activation_type("layer_norm_forward", args.x.dtype(), [&]<class T>(T) {
    with_kind(row_of(args.kind).centered, !args.beta.empty(),
              [&]<class KindOf>(KindOf) { forward<KindOf, T>(team_, args); });
  });
}

void CpuOps::layer_norm_backward(const LayerNormBackwardArgs& args) {
  with_activation_type("layer_norm_backward", args.x.dtype(), [&]<class T>(T) {
    with_kind(row_of(args.kind).centered, !args.dbeta.empty(),
              [&]<class KindOf>(KindOf) { backward<KindOf, T>(team_, args); });
  });
}

}  // namespace megatron
