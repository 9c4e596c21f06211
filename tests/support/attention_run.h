// One AttentionCase on a backend: its tensors, as strided views among NaN, and its forward and backward calls.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/ops/ops.h"
#include "base/core/half.h"
#include "base/core/philox.h"
#include "support/attention_reference.h"
#include "support/test_backend.h"

namespace megatron::test {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kBefore = 0.5f;  ///< earlier value of gradients that are added to

/// Rounded to T, so that kernel and reference start from the same numbers.
template <class T>
std::vector<double> random_values(std::size_t count, std::uint64_t key, double amplitude = 1) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double uniform = philox4x32({static_cast<std::uint32_t>(i)}, key)[0] * 0x1p-31 - 1.0;
    values[i] = static_cast<double>(wide(narrow<T>(static_cast<float>(amplitude * uniform))));
  }
  return values;
}

/// [s, b, heads, d] as columns in the middle of a wider [s, b, ...] tensor whose other columns are NaN.
template <class T>
struct Strided {
  std::int64_t rows, samples, heads, size, left, right;
  TestVector<T> storage;

  /// `s` rows of `a` heads, everything else as the case has it.
  Strided(const AttentionCase& c, std::int64_t s, std::int64_t a)
      : rows(s), samples(c.samples), heads(a), size(c.size), left(c.left_margin), right(c.right_margin) {
    storage.assign(static_cast<std::size_t>(rows * samples * width()) + 1, narrow<T>(kNaN));
  }
  Strided(const AttentionCase& c, std::int64_t s, std::int64_t a, const std::vector<double>& values)
      : Strided(c, s, a) {
    for (std::size_t i = 0; i < values.size(); ++i) storage[place(i)] = narrow<T>(static_cast<float>(values[i]));
  }
  std::int64_t width() const { return left + heads * size + right; }
  std::size_t place(std::size_t i) const {
    const auto row = static_cast<std::int64_t>(i) / (heads * size),
               column = static_cast<std::int64_t>(i) % (heads * size);
    return static_cast<std::size_t>(row * width() + left + column);
  }
  Tensor tensor() {
    return Tensor(storage.data(), {rows, samples, width()}, DTypeOf<T>::value)
        .slice(2, left, heads * size)
        .split_last(heads);
  }
  std::vector<double> values() const {
    std::vector<double> result(static_cast<std::size_t>(rows * samples * heads * size));
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<double>(wide(storage[place(i)]));
    return result;
  }
  bool margins_intact() const {
    const auto numbers = std::count_if(storage.begin(), storage.end(), [](T x) { return !std::isnan(wide(x)); });
    return numbers == rows * samples * heads * size;
  }
};

/// Reproducible inputs of a case, of elements T; `amplitude` of queries and keys.
template <class T = float>
struct Inputs {
  std::vector<double> q, k, v, dout, bias;
  explicit Inputs(const AttentionCase& c, double amplitude = 1)
      : q(random_values<T>(c.query_elements(), 11, amplitude)),
        k(random_values<T>(c.key_elements(), 12, amplitude)),
        v(random_values<T>(c.key_elements(), 13)),
        dout(random_values<T>(c.query_elements(), 14)),
        bias(random_values<T>(c.bias_elements(), 15)) {}
};

/// Everything that a case needs to run forward and backward on the backend under test.
template <class T = float>
struct Run {
  const AttentionCase& c;
  Strided<T> q, k, v, dout, out, dq, dk, dv;
  TestVector<float> log_sum_exp, slopes, dbias;
  TestVector<T> bias;
  bool wants_dbias = true;
  TestVector<std::int32_t> key_lengths, query_offsets, document_starts, positions;

  Run(const AttentionCase& test, const Inputs<T>& x)
      : c(test),
        q(c, c.queries, c.heads, x.q),
        k(c, c.keys, c.key_heads, x.k),
        v(c, c.keys, c.key_heads, x.v),
        dout(c, c.queries, c.heads, x.dout),
        out(c, c.queries, c.heads),
        dq(out),
        dk(c, c.keys, c.key_heads),
        dv(dk),
        log_sum_exp(static_cast<std::size_t>(c.samples * c.heads * c.queries), kNaN),
        slopes(c.slopes.begin(), c.slopes.end()),
        dbias(c.bias_elements(), kBefore),
        key_lengths(c.key_lengths.begin(), c.key_lengths.end()),
        document_starts(c.document_starts.begin(), c.document_starts.end()),
        positions(c.positions.begin(), c.positions.end()) {
    for (const double value : x.bias) bias.push_back(narrow<T>(static_cast<float>(value)));
    if (c.query_offset == 0 && c.offset_step == 0) return;
    for (std::int64_t i = 0; i < c.samples; ++i) query_offsets.push_back(static_cast<std::int32_t>(c.offset(i)));
  }

  AttentionMask mask() const {
    AttentionMask m;
    m.causal = c.causal;
    m.window = c.window;
    m.softcap = static_cast<float>(c.softcap);
    m.first_key = c.first_key;
    if (!key_lengths.empty()) m.key_lengths = ConstTensor(key_lengths.data(), {c.samples}, DType::i32);
    if (!query_offsets.empty()) m.query_offsets = ConstTensor(query_offsets.data(), {c.samples}, DType::i32);
    if (!document_starts.empty()) {
      m.document_starts = ConstTensor(document_starts.data(), {c.samples, c.queries}, DType::i32);
    }
    if (!slopes.empty()) m.slopes = ConstTensor(slopes.data(), {c.heads}, DType::f32);
    if (c.biased) {
      m.distance_bias = ConstTensor(bias.data(), {c.heads, c.buckets.buckets}, DTypeOf<T>::value);
      m.distance_buckets = c.buckets;
    }
    return m;
  }
  Dropout dropout() const {
    Dropout d;
    d.probability = static_cast<float>(c.dropout);
    d.key = c.key;
    if (!positions.empty()) d.positions = ConstTensor(positions.data(), {c.queries}, DType::i32);
    d.first_sample = c.first_sample;
    d.first_head = c.first_head;
    return d;
  }
  Tensor dbias_tensor() {
    return c.biased && wants_dbias ? Tensor(dbias.data(), {c.heads, c.buckets.buckets}, DType::f32) : Tensor();
  }
  /// Numbers that were added to the gradient of the bias.
  std::vector<double> added_dbias() const {
    std::vector<double> result(dbias.begin(), dbias.end());
    for (double& value : result) value -= double{kBefore};
    return result;
  }
  void execute(Ops& ops) {
    const Tensor lse(log_sum_exp.data(), {c.samples, c.heads, c.queries}, DType::f32);
    const auto scale = static_cast<float>(c.scale);
    ops.attention_forward({q.tensor(), k.tensor(), v.tensor(), out.tensor(), lse, scale, mask(), dropout()});
    ops.attention_backward({dout.tensor(), q.tensor(), k.tensor(), v.tensor(), out.tensor(), lse, dq.tensor(),
                            dk.tensor(), dv.tensor(), scale, mask(), dropout(), dbias_tensor()});
  }
};

}  // namespace megatron::test
