#include "backend/cpu/dropout.h"

#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/arguments.h"

namespace megatron {

namespace {

constexpr std::int64_t kChunk = 1024;  // multipliers kept on the stack at a time; a multiple of kDropoutBlock

/// Calls body(row, first, count, scales) for all pieces of at most kChunk columns of all [s, b] rows of x. Threads
/// share the rows; or, where body adds up over rows, the columns, so that each goes through all rows in order.
template <class Body>
void for_each_masked_piece(const char* verb, const ThreadTeam& team, const ConstTensor& x, const Dropout& dropout,
                           bool adds_over_rows, const Body& body) {
  internal_check(x.rank() == 3, "dropout of a tensor that is not [s, b, h]", x.shape());
  const std::int64_t samples = x.dim(1), rows = x.dim(0) * samples, columns = x.dim(2);
  const bool masked = dropout.probability != 0;
  const std::int32_t* positions = masked ? elements_of<std::int32_t>(verb, dropout.positions, x.dim(0)) : nullptr;
  const DropoutRule rule(dropout.probability);
  const auto mask_box = [&](std::int64_t top, std::int64_t bottom, std::int64_t low, std::int64_t high) {
    alignas(64) float scales[kChunk];
    if (!masked) std::fill(scales, scales + kChunk, 1.0f);
    for (std::int64_t row = top; row < bottom; ++row) {
      for (std::int64_t first = low; first < high; first += kChunk) {
        const std::int64_t count = std::min(kChunk, high - first);
        if (masked) {
          const DropoutRow mask_row{.key = dropout.key,
                                    .position = static_cast<std::uint32_t>(positions[row / samples]),
                                    .head = 0,
                                    .sample = static_cast<std::uint32_t>(dropout.first_sample + row % samples)};
          dropout_scales(mask_row, rule, first, count, scales);
        }
        body(row * columns, first, count, scales);
      }
    }
  };
  if (adds_over_rows) {
    team.columns(rows, columns, [&](std::int64_t first, std::int64_t last) { mask_box(0, rows, first, last); });
  } else {
    team.rows(rows, columns, [&](std::int64_t first, std::int64_t last) { mask_box(first, last, 0, columns); });
  }
}

template <class T, bool with_bias, bool with_residual>
void forward_piece(const T* x, const T* bias, const T* residual, const float* scales, T* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float kept = (with_bias ? wide(x[i]) + wide(bias[i]) : wide(x[i])) * scales[i];
    y[i] = narrow<T>(with_residual ? wide(residual[i]) + kept : kept);
  }
}

template <class T>
void forward(const ThreadTeam& team, const DropoutAddForwardArgs& args) {
  const RowsOf size(args.x);
  const T* x = elements_of<T>("dropout_add_forward", args.x, size.elements());
  const T* bias = optional_elements_of<T>("dropout_add_forward", args.bias, size.columns);
  const T* residual = optional_elements_of<T>("dropout_add_forward", args.residual, size.elements());
  T* y = elements_of<T>("dropout_add_forward", args.y, size.elements());
  const auto piece = bias ? (residual ? forward_piece<T, true, true> : forward_piece<T, true, false>)
                          : (residual ? forward_piece<T, false, true> : forward_piece<T, false, false>);
  for_each_masked_piece("dropout_add_forward", team, args.x, args.dropout, false,
                        [&](std::int64_t row, std::int64_t first, std::int64_t count, const float* scales) {
                          const std::int64_t at = row + first;
                          piece(x + at, bias ? bias + first : nullptr, residual ? residual + at : nullptr, scales,
                                y + at, count);
                        });
}

template <class T>
void backward(const ThreadTeam& team, const DropoutAddBackwardArgs& args) {
  const RowsOf size(args.dy);
  const T* dy = elements_of<T>("dropout_add_backward", args.dy, size.elements());
  T* dx = elements_of<T>("dropout_add_backward", args.dx, size.elements());
  float* dbias = optional_elements_of<float>("dropout_add_backward", args.dbias, size.columns);
  for_each_masked_piece("dropout_add_backward", team, args.dy, args.dropout, dbias != nullptr,
                        [&](std::int64_t row, std::int64_t first, std::int64_t count, const float* scales) {
                          const T* dy_piece = dy + row + first;
                          T* dx_piece = dx + row + first;
#pragma omp simd
                          for (std::int64_t i = 0; i < count; ++i) {
                            dx_piece[i] = narrow<T>(wide(dy_piece[i]) * scales[i]);
                          }
                          if (dbias == nullptr) return;
                          float* sums = dbias + first;
#pragma omp simd
                          for (std::int64_t i = 0; i < count; ++i) sums[i] += wide(dx_piece[i]);
                        });
}

}  // namespace

void CpuOps::dropout_add_forward(const DropoutAddForwardArgs& args) {
  with_activation_type("dropout_add_forward", args.x.dtype(), [&]<class T>(T) { forward<T>(team_, args); });
}

void CpuOps::dropout_add_backward(const DropoutAddBackwardArgs& args) {
  with_activation_type("dropout_add_backward", args.dy.dtype(), [&]<class T>(T) { backward<T>(team_, args); });
}

}  // namespace megatron
