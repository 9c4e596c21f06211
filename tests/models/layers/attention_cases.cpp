// Attention and cross-attention as layer cases.
#include "models/layers/layer_cases.h"

namespace megatron::test {

AttentionSizes attention_sizes(double dropout) {
  return {.hidden = kHidden, .heads = kHeads, .groups = kHeads, .head_size = kHidden / kHeads, .dropout = dropout};
}

float step_of(const AttentionSizes& sizes) {
  return sizes.query_key_norm ? 0.004f : 0.02f;
}

namespace {

/// Attention or CrossAttention.
template <class AnyAttention>
struct TestedOf final : TestedLayer {
  TestedOf(ParameterBuilder& builder, const AttentionSizes& sizes) : attention(builder, "attention", sizes, 2) {}
  void forward(Context& context, ConstTensor x, Tensor y) override {
    attention.forward(context, x, y, saved);
    add_bias(context, y, attention.output().bias());
  }
  void backward(Context& context, Tensor dy, Tensor dx) override {
    add_bias_gradient(context, dy, attention.output().bias_gradient());
    attention.backward(context, dy, saved, dx);
  }
  AnyAttention attention;
  typename AnyAttention::Saved saved;
};
using TestedAttention = TestedOf<Attention>;
using TestedCrossAttention = TestedOf<CrossAttention>;

/// Its bias by distance is a table that the model declares.
struct TestedRelativeAttention final : TestedLayer {
  static AttentionSizes with_table(ParameterBuilder& builder, AttentionSizes sizes) {
    sizes.distance_table = builder.column_parallel_weight(Role::embedding, "relative.weight", kHeads,
                                                          sizes.distance_buckets.buckets, 0.02);
    return sizes;
  }
  TestedRelativeAttention(ParameterBuilder& builder, const AttentionSizes& sizes)
      : attention(builder, with_table(builder, sizes)) {}
  void forward(Context& context, ConstTensor x, Tensor y) override { attention.forward(context, x, y); }
  void backward(Context& context, Tensor dy, Tensor dx) override { attention.backward(context, dy, dx); }
  TestedAttention attention;
};

}  // namespace

void add_attention_cases(CaseList& cases, double dropout) {
  const auto add_attention = [&](const std::string& name, const AttentionSizes& sizes) {
    LayerCase& layer = cases.add<TestedAttention>(name, kHidden, kHidden, sizes);
    layer.groups = sizes.groups;
    layer.step = step_of(sizes);
  };
  AttentionSizes attention = attention_sizes(dropout);
  add_attention("Attention", attention);
  attention.groups = 2;
  add_attention("Attention in two groups", attention);
  attention.groups = 1;
  add_attention("Attention in one group", attention);
  attention.alibi = true;
  attention.bias = false;
  add_attention("Attention in one group, with slopes and without biases", attention);
  attention = attention_sizes(dropout);
  attention.inverse_frequencies = {1, 0.3f};
  attention.scale_factor = 0.6;
  add_attention("Attention with rotations", attention);
  attention.groups = 2;
  attention.query_key_norm = true;
  add_attention("Attention with rotations and norms, in two groups", attention);
  AttentionSizes wide = attention_sizes(dropout);
  wide.head_size = 10;  // four of them are wider than the hidden state
  wide.groups = 2;
  wide.window = 3;
  wide.output_bias = false;
  add_attention("Attention with a window and wide heads, biases on query, key and value", wide);
  AttentionSizes capped = attention_sizes(dropout);
  capped.groups = 2;
  capped.softcap = 0.5;
  add_attention("Attention in two groups, of capped scores", capped);
  capped.groups = kHeads;
  capped.alibi = true;
  add_attention("Attention of capped scores, with slopes", capped);
  AttentionSizes seeing_all = attention_sizes(dropout);
  seeing_all.causal = false;
  cases.add<TestedAttention>("Attention that sees all of a sample", kHidden, kHidden, seeing_all).encoder = true;
  AttentionSizes relative = attention_sizes(dropout);
  relative.distance_buckets = {.bidirectional = false, .buckets = 4, .max_distance = 6};
  relative.scaled = relative.bias = false;
  cases.add<TestedRelativeAttention>("Attention with a bias by distance", kHidden, kHidden, relative);
  relative.causal = false;
  relative.distance_buckets = {.bidirectional = true, .buckets = 8, .max_distance = 6};
  relative.bias = true;
  const std::string seeing_all_relative = "Attention that sees all of a sample, with a bias by distance";
  cases.add<TestedRelativeAttention>(seeing_all_relative, kHidden, kHidden, relative).encoder = true;
  using TestedCross = SeeingItsInput<TestedCrossAttention>;
  AttentionSizes cross = attention_sizes(dropout);
  cases.add<TestedCross>("Cross-attention", kHidden, kHidden, cross);
  cross.softcap = 0.5;
  cases.add<TestedCross>("Cross-attention of capped scores", kHidden, kHidden, cross);
  cross.softcap = 0;
  cross.groups = 2;
  cross.bias = cross.output_bias = false;
  LayerCase& grouped = cases.add<TestedCross>("Cross-attention in two groups, without biases", kHidden, kHidden, cross);
  grouped.groups = cross.groups;
}

}  // namespace megatron::test
