// Whole blocks as layer cases.
#include "models/layers/layer_cases.h"

namespace megatron::test {

namespace {

BlockSizes block_sizes(double dropout) {
  return {
      .attention = attention_sizes(dropout), .mlp = kMlpSizes, .norm = {.hidden = kHidden}, .hidden_dropout = dropout};
}

struct TestedBlock final : TestedLayer {
  TestedBlock(ParameterBuilder& builder, const BlockSizes& sizes, bool recompute)
      : block(builder, "layers.2", sizes, 2, recompute) {
    saved.cross = &cross;
    saved.moe = &moe;
  }
  void forward(Context& context, ConstTensor x, Tensor y) override { block.forward(context, x, y, saved); }
  void backward(Context& context, Tensor dy, Tensor dx) override { block.backward(context, dy, saved, dx); }
  Block block;
  Block::CrossSaved cross;
  ExpertLayer::Saved moe;
  Block::Saved saved;
};

struct Recomputed {
  const char* what;
  bool norms;
  KeptInner kept;
};
constexpr Recomputed kRecomputed[] = {{"norms", true, KeptInner::all},
                                      {"activations", false, KeptInner::product},
                                      {"norms and activations", true, KeptInner::product},
                                      {"feed-forward part", false, KeptInner::none},
                                      {"norms and feed-forward part", true, KeptInner::none}};

BlockSizes without(const Recomputed& parts, BlockSizes sizes) {
  sizes.keeps_norms = sizes.attention.keeps_norms = !parts.norms;
  sizes.mlp.kept = parts.kept;
  if (sizes.moe) sizes.moe->experts.expert.kept = sizes.moe->dense.mlp.kept = parts.kept;
  return sizes;
}

}  // namespace

void add_block_cases(CaseList& cases, double dropout) {
  const auto add_block = [&](const std::string& name, const BlockSizes& sizes, bool recompute) {
    LayerCase& layer = cases.add<TestedBlock>(name, kHidden, kHidden, sizes, recompute);
    layer.groups = sizes.attention.groups;
    layer.step = step_of(sizes.attention);
  };
  // NAME, and NAME that makes parts of itself again.
  const auto add_with_parts = [&](const std::string& name, const BlockSizes& sizes) {
    add_block(name, sizes, false);
    for (const Recomputed& parts : kRecomputed) {
      add_block(name + kRecomputing + parts.what, without(parts, sizes), false);
    }
  };
  add_with_parts("Block", block_sizes(dropout));
  add_block("Recomputed block", block_sizes(dropout), true);
  BlockSizes plain = block_sizes(dropout);
  plain.attention.bias = plain.mlp.bias = false;
  add_block("Block without biases", plain, false);
  plain.hidden_dropout = 0;
  add_block("Block without biases and hidden dropout", plain, false);
  BlockSizes llama = block_sizes(dropout);
  llama.attention.inverse_frequencies = {1, 0.3f};
  llama.attention.groups = 2;
  llama.attention.query_key_norm = true;
  llama.attention.bias = llama.mlp.bias = false;
  llama.mlp.activation = Activation::swiglu;
  llama.norm.kind = Normalization::root_mean_square;
  for (const Residual residual : {Residual::parallel, Residual::parallel_one_norm}) {
    const std::string name =
        residual == Residual::parallel ? "with parallel parts" : "with parallel parts and one norm";
    BlockSizes parallel = block_sizes(dropout);
    parallel.residual = residual;
    add_with_parts("Block " + name, parallel);
    add_block("Recomputed block " + name, parallel, true);
    parallel.hidden_dropout = 0;
    add_block("Block without hidden dropout, " + name, parallel, false);
  }
  BlockSizes post = block_sizes(dropout);
  post.residual = Residual::post_norm;
  add_with_parts("Post-norm block", post);
  add_block("Recomputed post-norm block", post, true);
  post.attention.causal = false;
  post.hidden_dropout = 0;
  cases.add<TestedBlock>("Post-norm encoder block without hidden dropout", kHidden, kHidden, post, false).encoder =
      true;
  BlockSizes experts = block_sizes(dropout);
  experts.moe = moe_sizes(3, 3);
  add_with_parts("Block with experts", experts);
  add_block("Recomputed block with experts", experts, true);
  experts.moe->experts.buffer = 1;
  add_with_parts("Block with experts without drops", experts);
  add_block("Recomputed block with experts without drops", experts, true);
  experts.moe->experts.buffer = 0;
  experts.residual = Residual::parallel;
  add_block("Block with experts and parallel parts", experts, false);
  experts.residual = Residual::post_norm;
  add_block("Recomputed post-norm block with experts", experts, true);
  using Mix = DensePartSizes::Mix;
  MoeSizes noisy = moe_sizes(3, 3);
  noisy.router.jitter = 0.2;
  BlockSizes shared = block_sizes(dropout);
  shared.moe = with_dense_part(noisy, Mix::sum, kMlpSizes);
  add_block("Recomputed block with shared experts", shared, true);
  shared.moe = with_dense_part(noisy, Mix::sigmoid, kMlpSizes);
  shared.hidden_dropout = 0;
  add_with_parts("Block with shared experts behind a gate, without hidden dropout", shared);
  add_block("Recomputed block with shared experts behind a gate, without hidden dropout", shared, true);
  shared.moe = with_dense_part(noisy, Mix::softmax, kMlpSizes);
  add_block("Recomputed block with residual experts, without hidden dropout", shared, true);
  shared.residual = Residual::post_norm;
  add_block("Post-norm block with residual experts, without hidden dropout", shared, false);
  BlockSizes decoder = block_sizes(dropout);
  decoder.cross_attention = true;
  const auto add_decoder_block = [&](const std::string& name, bool recompute) {
    cases.add<SeeingItsInput<TestedBlock>>(name, kHidden, kHidden, decoder, recompute);
  };
  add_decoder_block("Block with cross-attention", false);
  for (const Recomputed& parts : kRecomputed) {
    cases.add<SeeingItsInput<TestedBlock>>(std::string("Block with cross-attention") + kRecomputing + parts.what,
                                           kHidden, kHidden, without(parts, decoder), false);
  }
  add_decoder_block("Recomputed block with cross-attention", true);
  decoder.hidden_dropout = 0;
  decoder.attention.bias = decoder.attention.output_bias = decoder.mlp.bias = false;
  decoder.norm.kind = Normalization::root_mean_square;
  add_decoder_block("Block with cross-attention, without biases and hidden dropout", false);
  add_with_parts("Llama's block with norms of queries and keys", llama);
  add_block("Recomputed Llama's block with norms of queries and keys", llama, true);
}

}  // namespace megatron::test
