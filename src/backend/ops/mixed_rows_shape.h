// Shared by the backends for the verbs of mixed_rows.h: the checked extents and places of a call, which kernels take by
// value. Reads no element.
#pragma once

#include "backend/ops/arguments.h"
#include "backend/ops/mixed_rows.h"

namespace megatron {

template <class T>
struct MixedRows {
  std::int64_t rows, columns, logits_each;
  const float* logits;
  const T* bias;  ///< or null

  MixedRows(const char* verb, const ConstTensor& by_row, const ConstTensor& bias_of_logits, const ConstTensor& b_rows)
      : rows(RowsOf(b_rows).rows),
        columns(RowsOf(b_rows).columns),
        logits_each(RowsOf(by_row).columns),
        logits(elements_of<float>(verb, by_row, rows * logits_each)),
        bias(optional_elements_of<T>(verb, bias_of_logits, logits_each)) {
    internal_check(rows == 0 || logits_each == 1 || logits_each == 2, verb, rows, logits_each);
  }

  constexpr bool two() const { return logits_each == 2; }
};

template <class T>
struct MixRowsForwardShape : MixedRows<T> {
  const T *a, *b;
  T* y;

  explicit MixRowsForwardShape(const MixRowsForwardArgs& args)
      : MixedRows<T>("mix_rows_forward", args.logits, args.bias, args.b),
        a(elements_of<T>("mix_rows_forward", args.a, this->rows * this->columns)),
        b(elements_of<T>("mix_rows_forward", args.b, this->rows * this->columns)),
        y(elements_of<T>("mix_rows_forward", args.y, this->rows * this->columns)) {}
};

template <class T>
struct MixRowsBackwardShape : MixedRows<T> {
  const T *a, *b, *dy;  ///< a and da are null of one logit
  T *da, *db;
  float* dlogits;

  explicit MixRowsBackwardShape(const MixRowsBackwardArgs& args)
      : MixedRows<T>("mix_rows_backward", args.logits, args.bias, args.b),
        a(this->two() ? elements_of<T>("mix_rows_backward", args.a, this->rows * this->columns) : nullptr),
        b(elements_of<T>("mix_rows_backward", args.b, this->rows * this->columns)),
        dy(elements_of<T>("mix_rows_backward", args.dy, this->rows * this->columns)),
        da(this->two() ? elements_of<T>("mix_rows_backward", args.da, this->rows * this->columns) : nullptr),
        db(elements_of<T>("mix_rows_backward", args.db, this->rows * this->columns)),
        dlogits(elements_of<float>("mix_rows_backward", args.dlogits, this->rows * this->logits_each)) {}
};

template <class T>
struct JitterRowsShape {
  std::int64_t rows, columns, samples;
  const T* x;
  T* y;
  const std::int32_t* positions;  ///< null: all factors are 1
  std::uint64_t key;
  std::int64_t first_sample;
  float amount;
  bool accumulate;

  explicit JitterRowsShape(const JitterRowsArgs& args)
      : rows(RowsOf(args.x).rows),
        columns(RowsOf(args.x).columns),
        samples(samples_of(args.x)),
        x(elements_of<T>("jitter_rows", args.x, rows * columns)),
        y(elements_of<T>("jitter_rows", args.y, rows * columns)),
        positions(args.jitter.amount != 0
                      ? elements_of<std::int32_t>("jitter_rows", args.jitter.positions, args.x.dim(0))
                      : nullptr),
        key(args.jitter.key),
        first_sample(args.jitter.first_sample),
        amount(args.jitter.amount),
        accumulate(args.accumulate) {
    internal_check(rows < std::int64_t{1} << 32, "jitter_rows", rows);
  }

  static std::int64_t samples_of(const ConstTensor& x) {
    internal_check(x.rank() == 3, "jitter_rows of a tensor that is not [s, b, h]", x.shape());
    return x.dim(1);
  }
  constexpr std::uint32_t position_of(std::int64_t row) const {
    return static_cast<std::uint32_t>(positions[static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(samples)]);
  }
  constexpr std::uint32_t sample_of(std::int64_t row) const {
    return static_cast<std::uint32_t>(first_sample) +
           static_cast<std::uint32_t>(row) % static_cast<std::uint32_t>(samples);
  }
  /// The factor of a 16-bit draw.
  constexpr float factor(std::int32_t draw) const {
    return 1.0f + amount * (static_cast<float>(2 * draw + 1) * (1.0f / 65536) - 1.0f);
  }
};

}  // namespace megatron
