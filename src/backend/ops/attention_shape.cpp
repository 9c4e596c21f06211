#include "backend/ops/attention_shape.h"

namespace megatron {

AttentionShape::AttentionShape(const char* verb, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                               const AttentionMask& mask, const Dropout& dropout)
    : verb_(verb), type_(q.dtype()) {
  internal_check(q.rank() == 4 && k.rank() == 4, "attention: queries and keys are [s, b, heads, head size]", q.shape(),
                 k.shape());
  queries = q.dim(0);
  keys = k.dim(0);
  samples = q.dim(1);
  heads = q.dim(2);
  key_heads = k.dim(2);
  head_size = q.dim(3);
  heads_per_key_head = heads == 0 ? 0 : exact_division(heads, key_heads, "attention: query heads over key heads");
  check_queries(q);
  check_keys(k);
  check_keys(v);
  for (const ConstTensor& by_sample : {mask.key_lengths, mask.query_offsets}) {
    if (!by_sample) continue;
    internal_check(by_sample.dtype() == DType::i32 && by_sample.contiguous() && by_sample.shape() == Shape{samples},
                   "attention: key lengths and query offsets are i32 [b]", by_sample.dtype(), by_sample.shape(),
                   samples);
  }
  if (mask.document_starts) {
    internal_check(mask.document_starts.dtype() == DType::i32 && mask.document_starts.contiguous() &&
                       mask.document_starts.shape() == Shape{samples, queries},
                   "attention: document starts are i32 [b, s_q]", mask.document_starts.dtype(),
                   mask.document_starts.shape(), samples, queries);
  }
  internal_check(mask.first_key >= 0, "attention: the first key is in front of the sequence", mask.first_key);
  internal_check(mask.softcap >= 0, "attention: the soft cap is not negative", mask.softcap);
  if (mask.slopes) {
    internal_check(mask.slopes.dtype() == DType::f32 && mask.slopes.contiguous() && mask.slopes.shape() == Shape{heads},
                   "attention: slopes are f32 [a]", mask.slopes.dtype(), mask.slopes.shape(), heads);
  }
  if (mask.distance_bias) {
    internal_check(mask.distance_buckets.valid(), "attention: the buckets of distances make no rule");
    internal_check(mask.distance_bias.dtype() == type_ && mask.distance_bias.contiguous() &&
                       mask.distance_bias.shape() == Shape{heads, mask.distance_buckets.buckets},
                   "attention: the bias of distances is [a, buckets] of the activations' type",
                   mask.distance_bias.dtype(), mask.distance_bias.shape(), heads, mask.distance_buckets.buckets);
  }
  if (dropout.probability > 0) {
    internal_check(dropout.positions.dtype() == DType::i32 && dropout.positions.contiguous() &&
                       dropout.positions.shape() == Shape{queries},
                   "attention: dropout positions are i32 [s_q]", dropout.positions.dtype(), dropout.positions.shape(),
                   queries);
    internal_check(mask.first_key % 8 == 0, "attention: keys of dropout begin with a whole draw", mask.first_key);
  }
}

void AttentionShape::check(const ConstTensor& x, std::int64_t rows, std::int64_t x_heads) const {
  if (x.dtype() != type_) {
    fail(ErrorKind::internal, "{}: a tensor of {} with queries of {}", verb_, name_of(x.dtype()), name_of(type_));
  }
  internal_check(x.shape() == Shape({rows, samples, x_heads, head_size}), "attention: shapes do not fit", x.shape(),
                 rows, samples, x_heads, head_size);
  internal_check(head_size <= 1 || x.stride(3) == 1, "attention: the last dimension is not contiguous", x.shape(),
                 x.stride(3));
}

void AttentionShape::check_log_sum_exp(const ConstTensor& x) const {
  internal_check(x.dtype() == DType::f32 && x.contiguous() && x.shape() == Shape({samples, heads, queries}),
                 "attention: log_sum_exp is f32 [b, a, s_q]", x.dtype(), x.shape(), samples, heads, queries);
}

void AttentionShape::check_distance_gradient(const Tensor& x, const AttentionMask& mask) const {
  if (!x) return;
  internal_check(static_cast<bool>(mask.distance_bias),
                 "attention: the gradient of a bias of distances that is not there");
  internal_check(x.dtype() == DType::f32 && x.contiguous() && x.shape() == mask.distance_bias.shape(),
                 "attention: the gradient of the bias of distances is f32 [a, buckets]", x.dtype(), x.shape(),
                 mask.distance_bias.shape());
}

}  // namespace megatron
