// The layers of nn/ behind the one face of layer_on_ranks.h.
#include "base/philox.h"
#include "nn/block.h"
#include "nn/embedding.h"
#include "nn/head.h"
#include "nn/layer_on_ranks.h"

namespace megatron::test {

namespace {

AttentionSizes attention_sizes(double dropout) {
  return {.hidden = kHidden, .heads = kHeads, .dropout = dropout};
}
constexpr MlpSizes kMlpSizes{.hidden = kHidden, .ffn = kFeedForward};

struct TestedNorm final : TestedLayer {
  explicit TestedNorm(Declare& declare) : norm(declare, "norm", kHidden, 1e-5) {}
  void forward(Context& context, ConstTensor x, Tensor y) override { norm.forward(context, x, y, saved); }
  void backward(Context& context, Tensor dy, Tensor dx) override { norm.backward(context, dy, saved, {}, dx); }
  LayerNorm norm;
  LayerNorm::Saved saved;
};

// The layers that leave their bias to their consumer get it here, so that every declared parameter counts.
struct TestedColumnLinear final : TestedLayer {
  static ColumnParallelLinear make(Declare& declare) {
    const int weight = declare.split_rows("column.weight", kFeedForward, kHidden, 0.02);
    const int bias = declare.split_bias("column.bias", kFeedForward);
    return {declare.store(), weight, bias, /*records=*/1, kHidden};
  }
  explicit TestedColumnLinear(Declare& declare) : linear(make(declare)) {}
  void forward(Context& context, ConstTensor input, Tensor y) override {
    x = input;
    linear.forward(context, x, y);
    context.ops.add_bias({.x = as_matrix(y), .bias = linear.bias()});
  }
  void backward(Context& context, Tensor dy, Tensor dx) override {
    context.ops.column_sum({.x = as_matrix(dy), .y = linear.bias_gradient()});
    linear.backward(context, dy, x, dx);
  }
  ColumnParallelLinear linear;
  ConstTensor x;
};

struct TestedRowLinear final : TestedLayer {
  static RowParallelLinear make(Declare& declare) {
    const int weight = declare.split_columns("row.weight", kHidden, kFeedForward, 0.02);
    return {declare.store(), weight, declare.whole_vector("row.bias", kHidden, 0)};
  }
  explicit TestedRowLinear(Declare& declare) : linear(make(declare)) {}
  void forward(Context& context, ConstTensor input, Tensor y) override {
    x = input;
    linear.forward(context, x, y);
    context.ops.add_bias({.x = as_matrix(y), .bias = linear.bias()});
  }
  void backward(Context& context, Tensor dy, Tensor dx) override {
    context.ops.column_sum({.x = as_matrix(dy), .y = linear.bias_gradient()});
    linear.backward(context, dy, x, dx);
  }
  RowParallelLinear linear;
  ConstTensor x;
};

struct TestedAttention final : TestedLayer {
  TestedAttention(Declare& declare, double dropout) : attention(declare, "attention", attention_sizes(dropout), 2) {}
  void forward(Context& context, ConstTensor x, Tensor y) override {
    attention.forward(context, x, y, saved);
    context.ops.add_bias({.x = as_matrix(y), .bias = attention.output().bias()});
  }
  void backward(Context& context, Tensor dy, Tensor dx) override {
    context.ops.column_sum({.x = as_matrix(dy), .y = attention.output().bias_gradient()});
    attention.backward(context, dy, saved, dx);
  }
  Attention attention;
  Attention::Saved saved;
};

struct TestedMlp final : TestedLayer {
  explicit TestedMlp(Declare& declare) : mlp(declare, "mlp", kMlpSizes) {}
  void forward(Context& context, ConstTensor x, Tensor y) override {
    mlp.forward(context, x, y, saved);
    context.ops.add_bias({.x = as_matrix(y), .bias = mlp.down().bias()});
  }
  void backward(Context& context, Tensor dy, Tensor dx) override {
    context.ops.column_sum({.x = as_matrix(dy), .y = mlp.down().bias_gradient()});
    mlp.backward(context, dy, saved, dx);
  }
  Mlp mlp;
  Mlp::Saved saved;
};

struct TestedBlock final : TestedLayer {
  TestedBlock(Declare& declare, double dropout, bool recompute)
      : block(declare, "layers.2", {attention_sizes(dropout), kMlpSizes, 1e-5, dropout}, 2, recompute) {}
  void forward(Context& context, ConstTensor x, Tensor y) override { block.forward(context, x, y, saved); }
  void backward(Context& context, Tensor dy, Tensor dx) override { block.backward(context, dy, saved, dx); }
  Block block;
  Block::Saved saved;
};

int declare_word(Declare& declare) {
  return declare.split_rows("embedding.word.weight", kPaddedVocab, kHidden, 0.02);
}

struct TestedEmbedding final : TestedLayer {
  TestedEmbedding(Declare& declare, double dropout)
      : embedding(declare, declare_word(declare), {kPaddedVocab, kPositions, kHidden, dropout, 0.02}) {}
  void forward(Context& context, ConstTensor, Tensor y) override { embedding.forward(context, y); }
  void backward(Context& context, Tensor dy, Tensor) override { embedding.backward(context, dy); }
  Embedding embedding;
};

struct TestedHead final : TestedLayer {
  explicit TestedHead(Declare& declare) : head(declare, declare_word(declare), {kVocab, kHidden, 1e-5}) {}
  void forward(Context& context, ConstTensor input, Tensor loss) override {
    x = input;
    context.ops.fill(loss, 0);
    head.forward(context, x, loss, saved);
    fresh = true;
  }
  // The logits have become their gradient: another backward needs another forward.
  void backward(Context& context, Tensor, Tensor dx) override {
    double unused = 0;
    if (!fresh) head.forward(context, x, Tensor(&unused, {1}, DType::f64), saved);
    fresh = false;
    head.backward(context, saved, dx);
  }
  Head head;
  Head::Saved saved;
  ConstTensor x;
  bool fresh = false;
};

}  // namespace

std::vector<LayerCase> layer_cases(double dropout) {
  const auto make = []<class Layer>(std::type_identity<Layer>, auto... arguments) {
    return [arguments...](Declare& declare) -> std::unique_ptr<TestedLayer> {
      return std::make_unique<Layer>(declare, arguments...);
    };
  };
  const std::int64_t h = kHidden, f = kFeedForward;
  return {
      {"LayerNorm", h, h, Cut::rows, Cut::rows, make(std::type_identity<TestedNorm>())},
      {"ColumnParallelLinear", h, f, Cut::rows, Cut::columns, make(std::type_identity<TestedColumnLinear>())},
      {"RowParallelLinear", f, h, Cut::columns, Cut::rows, make(std::type_identity<TestedRowLinear>())},
      {"Attention", h, h, Cut::rows, Cut::rows, make(std::type_identity<TestedAttention>(), dropout)},
      {"Mlp", h, h, Cut::rows, Cut::rows, make(std::type_identity<TestedMlp>())},
      {"Block", h, h, Cut::rows, Cut::rows, make(std::type_identity<TestedBlock>(), dropout, false)},
      {"Recomputed block", h, h, Cut::rows, Cut::rows, make(std::type_identity<TestedBlock>(), dropout, true)},
      {"Embedding", 0, h, Cut::rows, Cut::rows, make(std::type_identity<TestedEmbedding>(), dropout)},
      {"Head", h, 0, Cut::rows, Cut::rows, make(std::type_identity<TestedHead>())},
  };
}

LayerCase layer_case(const std::string& name, double dropout) {
  for (LayerCase& layer : layer_cases(dropout)) {
    if (layer.name == name) return layer;
  }
  fail(ErrorKind::internal, "no layer case \"{}\"", name);
}

}  // namespace megatron::test
