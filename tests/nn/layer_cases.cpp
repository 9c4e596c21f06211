// The layers of nn/ behind the common interface of layer_on_ranks.h.
#include "base/philox.h"
#include "nn/bert_head.h"
#include "nn/block.h"
#include "nn/embedding.h"
#include "nn/head.h"
#include "nn/layer_on_ranks.h"

namespace megatron::test {

namespace {

AttentionSizes attention_sizes(double dropout) {
  return {.hidden = kHidden, .heads = kHeads, .groups = kHeads, .head_size = kHidden / kHeads, .dropout = dropout};
}
constexpr MlpSizes kMlpSizes{.hidden = kHidden, .ffn = kFeedForward};

BlockSizes block_sizes(double dropout) {
  return {
      .attention = attention_sizes(dropout), .mlp = kMlpSizes, .norm = {.hidden = kHidden}, .hidden_dropout = dropout};
}

// The output bias, which these layers leave to their consumer, is added here, so that every declared parameter counts.
void add_bias(Context& context, Tensor y, ConstTensor bias) {
  if (bias) context.ops.add_bias({.x = as_matrix(y), .bias = bias});
}

void add_bias_gradient(Context& context, ConstTensor dy, Tensor dbias) {
  if (dbias) context.ops.column_sum({.x = as_matrix(dy), .y = dbias});
}

struct TestedNorm final : TestedLayer {
  TestedNorm(ParameterBuilder& builder, Normalization kind)
      : norm(builder, "norm", {.hidden = kHidden, .kind = kind}) {}
  void forward(Context& context, ConstTensor x, Tensor y) override { norm.forward(context, x, y, saved); }
  void backward(Context& context, Tensor dy, Tensor dx) override { norm.backward(context, dy, saved, {}, dx); }
  Norm norm;
  Norm::Saved saved;
};

struct TestedColumnLinear final : TestedLayer {
  static ColumnParallelLinear make(ParameterBuilder& builder) {
    const int weight = builder.column_parallel_weight("column.weight", kFeedForward, kHidden, 0.02);
    const int bias = builder.column_parallel_bias("column.bias", kFeedForward);
    return {builder.store(), weight, bias, /*records=*/1, kHidden};
  }
  explicit TestedColumnLinear(ParameterBuilder& builder) : linear(make(builder)) {}
  void forward(Context& context, ConstTensor input, Tensor y) override {
    x = input;
    linear.forward(context, x, y);
  }
  void backward(Context& context, Tensor dy, Tensor dx) override {
    add_bias_gradient(context, dy, linear.bias_gradient());
    linear.backward(context, dy, x, dx);
  }
  ColumnParallelLinear linear;
  ConstTensor x;
};

struct TestedRowLinear final : TestedLayer {
  static RowParallelLinear make(ParameterBuilder& builder) {
    const int weight = builder.row_parallel_weight("row.weight", kHidden, kFeedForward, 0.02);
    return {builder.store(), weight, builder.replicated_vector("row.bias", kHidden, 0)};
  }
  explicit TestedRowLinear(ParameterBuilder& builder) : linear(make(builder)) {}
  void forward(Context& context, ConstTensor input, Tensor y) override {
    x = input;
    linear.forward(context, x, y);
    add_bias(context, y, linear.bias());
  }
  void backward(Context& context, Tensor dy, Tensor dx) override {
    add_bias_gradient(context, dy, linear.bias_gradient());
    linear.backward(context, dy, x, dx);
  }
  RowParallelLinear linear;
  ConstTensor x;
};

struct TestedAttention final : TestedLayer {
  TestedAttention(ParameterBuilder& builder, const AttentionSizes& sizes) : attention(builder, "attention", sizes, 2) {}
  void forward(Context& context, ConstTensor x, Tensor y) override {
    attention.forward(context, x, y, saved);
    add_bias(context, y, attention.output().bias());
  }
  void backward(Context& context, Tensor dy, Tensor dx) override {
    add_bias_gradient(context, dy, attention.output().bias_gradient());
    attention.backward(context, dy, saved, dx);
  }
  Attention attention;
  Attention::Saved saved;
};

struct TestedMlp final : TestedLayer {
  TestedMlp(ParameterBuilder& builder, const MlpSizes& sizes) : mlp(builder, "mlp", sizes) {}
  void forward(Context& context, ConstTensor x, Tensor y) override {
    mlp.forward(context, x, y, saved);
    add_bias(context, y, mlp.down().bias());
  }
  void backward(Context& context, Tensor dy, Tensor dx) override {
    add_bias_gradient(context, dy, mlp.down().bias_gradient());
    mlp.backward(context, dy, saved, dx);
  }
  Mlp mlp;
  Mlp::Saved saved;
};

struct TestedBlock final : TestedLayer {
  TestedBlock(ParameterBuilder& builder, const BlockSizes& sizes, bool recompute)
      : block(builder, "layers.2", sizes, 2, recompute) {}
  void forward(Context& context, ConstTensor x, Tensor y) override { block.forward(context, x, y, saved); }
  void backward(Context& context, Tensor dy, Tensor dx) override { block.backward(context, dy, saved, dx); }
  Block block;
  Block::Saved saved;
};

int declare_word(ParameterBuilder& builder) {
  return builder.column_parallel_weight("embedding.word.weight", kPaddedVocab, kHidden, 0.02);
}

struct TestedEmbedding final : TestedLayer {
  TestedEmbedding(ParameterBuilder& builder, const EmbeddingSizes& sizes)
      : embedding(builder, declare_word(builder), sizes) {}
  void forward(Context& context, ConstTensor, Tensor y) override { embedding.forward(context, y, saved); }
  void backward(Context& context, Tensor dy, Tensor) override { embedding.backward(context, dy, saved); }
  Embedding embedding;
  Embedding::Saved saved;
};

template <class HeadClass, class Sizes>
struct TestedHead final : TestedLayer {
  TestedHead(ParameterBuilder& builder, const Sizes& sizes) : head(builder, declare_word(builder), sizes) {}
  void forward(Context& context, ConstTensor input, Tensor) override {
    x = input;
    head.forward(context, x, saved);
    fresh = true;
  }
  // The logits have become their gradient: another backward needs another forward.
  void backward(Context& context, Tensor, Tensor dx) override {
    if (!fresh) head.forward(context, x, saved);
    fresh = false;
    head.backward(context, saved, dx);
  }
  HeadClass head;
  typename HeadClass::Saved saved;
  ConstTensor x;
  bool fresh = false;
};
using TestedDecoderHead = TestedHead<Head, HeadSizes>;
using TestedBertHead = TestedHead<BertHead, BertHeadSizes>;

}  // namespace

std::vector<LayerCase> layer_cases(double dropout) {
  const auto make = []<class Layer>(std::type_identity<Layer>, auto... arguments) {
    return [arguments...](ParameterBuilder& builder) -> std::unique_ptr<TestedLayer> {
      return std::make_unique<Layer>(builder, arguments...);
    };
  };
  const std::int64_t h = kHidden, f = kFeedForward;
  std::vector<LayerCase> cases = {
      {"ColumnParallelLinear", h, f, Cut::rows, Cut::columns, make(std::type_identity<TestedColumnLinear>())},
      {"RowParallelLinear", f, h, Cut::columns, Cut::rows, make(std::type_identity<TestedRowLinear>())},
  };
  HeadSizes head{.vocab = kVocab, .norm = {.hidden = kHidden}};
  cases.push_back({"Head", h, 0, Cut::rows, Cut::rows, make(std::type_identity<TestedDecoderHead>(), head)});
  head.bias = true;
  cases.push_back(
      {"Head with a bias", h, 0, Cut::rows, Cut::rows, make(std::type_identity<TestedDecoderHead>(), head)});
  const auto add_encoder = [&](LayerCase layer) {
    layer.encoder = true;
    cases.push_back(std::move(layer));
  };
  BertHeadSizes bert{.vocab = kVocab, .norm = {.hidden = kHidden}, .sentence_order_term = 0};  // a sum of both losses
  add_encoder({"BERT's head", h, 0, Cut::rows, Cut::rows, make(std::type_identity<TestedBertHead>(), bert)});
  bert.final_norm = false;
  bert.activation = Activation::gelu_exact;
  add_encoder({"BERT's head without a norm of its input", h, 0, Cut::rows, Cut::rows,
               make(std::type_identity<TestedBertHead>(), bert)});
  for (const NormalizationRow& row : kNormalizations) {
    cases.push_back(
        {std::string(row.name), h, h, Cut::rows, Cut::rows, make(std::type_identity<TestedNorm>(), row.kind)});
  }
  const auto add_embedding = [&](const std::string& name, const EmbeddingSizes& sizes) {
    cases.push_back({name, 0, h, Cut::rows, Cut::rows, make(std::type_identity<TestedEmbedding>(), sizes)});
  };
  EmbeddingSizes embedding{
      .padded_vocab = kPaddedVocab, .hidden = kHidden, .positions = kPositions, .dropout = dropout};
  add_embedding("Embedding", embedding);
  embedding.scale = 1.7;
  add_embedding("Embedding with a scale", embedding);
  embedding.norm = NormSizes{.hidden = kHidden};
  add_embedding("Embedding with a scale and a norm", embedding);
  embedding = {.padded_vocab = kPaddedVocab, .hidden = kHidden, .dropout = dropout};
  add_embedding("Embedding without positions", embedding);
  embedding.positions = kPositions;
  embedding.types = 2;
  add_encoder(
      {"Embedding with types", 0, h, Cut::rows, Cut::rows, make(std::type_identity<TestedEmbedding>(), embedding)});
  // A head's norm bends where the head is small.
  const auto step_of = [](const AttentionSizes& sizes) { return sizes.query_key_norm ? 0.004f : 0.02f; };
  const auto add_attention = [&](const std::string& name, const AttentionSizes& sizes) {
    cases.push_back({name, h, h, Cut::rows, Cut::rows, make(std::type_identity<TestedAttention>(), sizes), sizes.groups,
                     step_of(sizes)});
  };
  const auto add_mlp = [&](const std::string& name, const MlpSizes& sizes) {
    cases.push_back({name, h, h, Cut::rows, Cut::rows, make(std::type_identity<TestedMlp>(), sizes)});
  };
  const auto add_block = [&](const std::string& name, const BlockSizes& sizes, bool recompute) {
    cases.push_back({name, h, h, Cut::rows, Cut::rows, make(std::type_identity<TestedBlock>(), sizes, recompute),
                     sizes.attention.groups, step_of(sizes.attention)});
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
  AttentionSizes seeing_all = attention_sizes(dropout);
  seeing_all.causal = false;
  add_encoder({"Attention that sees all of a sample", h, h, Cut::rows, Cut::rows,
               make(std::type_identity<TestedAttention>(), seeing_all)});
  add_mlp("Mlp", kMlpSizes);
  for (const ActivationRow& row : kActivations) {
    if (row.activation == Activation::gelu || row.activation == Activation::relu) continue;  // relu has a kink
    add_mlp("Mlp with " + std::string(row.name),
            {.hidden = kHidden, .ffn = kFeedForward, .activation = row.activation});
  }
  add_mlp("Mlp without biases", {.hidden = kHidden, .ffn = kFeedForward, .bias = false});
  add_block("Block", block_sizes(dropout), false);
  add_block("Recomputed block", block_sizes(dropout), true);
  BlockSizes plain = block_sizes(dropout);
  plain.attention.bias = plain.mlp.bias = false;
  add_block("Block without biases", plain, false);
  plain.hidden_dropout = 0;
  add_block("Block without biases and hidden dropout", plain, false);
  BlockSizes llama = block_sizes(dropout);
  llama.attention = attention;
  llama.attention.bias = llama.mlp.bias = false;
  llama.mlp.activation = Activation::swiglu;
  llama.norm.kind = Normalization::root_mean_square;
  for (const Residual residual : {Residual::parallel, Residual::parallel_one_norm}) {
    const std::string name =
        residual == Residual::parallel ? "with parallel parts" : "with parallel parts and one norm";
    BlockSizes parallel = block_sizes(dropout);
    parallel.residual = residual;
    add_block("Block " + name, parallel, false);
    add_block("Recomputed block " + name, parallel, true);
    parallel.hidden_dropout = 0;
    add_block("Block without hidden dropout, " + name, parallel, false);
  }
  BlockSizes post = block_sizes(dropout);
  post.residual = Residual::post_norm;
  add_block("Post-norm block", post, false);
  add_block("Recomputed post-norm block", post, true);
  post.attention.causal = false;
  post.hidden_dropout = 0;
  add_encoder({"Post-norm encoder block without hidden dropout", h, h, Cut::rows, Cut::rows,
               make(std::type_identity<TestedBlock>(), post, false)});
  add_block("Llama's block with norms of queries and keys", llama, false);
  add_block("Recomputed Llama's block with norms of queries and keys", llama, true);
  return cases;
}

LayerCase layer_case(const std::string& name, double dropout) {
  for (LayerCase& layer : layer_cases(dropout)) {
    if (layer.name == name) return layer;
  }
  fail(ErrorKind::internal, "no layer case \"{}\"", name);
}

}  // namespace megatron::test
