// The lists that layer_cases() is made of, and what their layers share.
#pragma once

#include <string>
#include <vector>

#include "models/families/block.h"
#include "models/layers/layer_on_ranks.h"

namespace megatron::test {

class CaseList {
 public:
  /// A case whose layer is a `Layer` of these arguments; from and to rows outside of a tensor region.
  template <class Layer, class... Arguments>
  LayerCase& add(const std::string& name, std::int64_t in, std::int64_t out, const Arguments&... arguments) {
    const auto make = [arguments...](ParameterBuilder& builder) -> std::unique_ptr<TestedLayer> {
      return std::make_unique<Layer>(builder, arguments...);
    };
    return cases_.emplace_back(LayerCase{name, in, out, Cut::rows, Cut::rows, make});
  }
  std::vector<LayerCase> take() { return std::move(cases_); }

 private:
  std::vector<LayerCase> cases_;
};

void add_linear_and_norm_cases(CaseList& cases);
void add_end_cases(CaseList& cases, double dropout);  ///< embeddings and heads
void add_attention_cases(CaseList& cases, double dropout);
void add_feed_forward_cases(CaseList& cases);
void add_expert_layer_cases(CaseList& cases);
void add_block_cases(CaseList& cases, double dropout);

/// In the name of a block that keeps less: after the name of the block that keeps all.
inline constexpr const char* kRecomputing = ", recomputing ";

/// In the name of a head whose rows are in several chunks.
inline constexpr const char* kInChunks = ", in chunks";

AttentionSizes attention_sizes(double dropout);
/// Step of finite differences: smaller with a norm per head, which bends where the head is small.
float step_of(const AttentionSizes& sizes);
inline constexpr MlpSizes kMlpSizes{.hidden = kHidden, .ffn = kFeedForward};
/// Without expert ranks, whose exchange the parity tests play.
MoeSizes moe_sizes(std::int64_t experts, std::int64_t top_k);
ExpertLayerSizes with_dense_part(const MoeSizes& experts, DensePartSizes::Mix mix, const MlpSizes& mlp);

/// The output bias, which these layers leave to their caller, is added here, so that every declared parameter counts.
inline void add_bias(Context& context, Tensor y, ConstTensor bias) {
  if (bias) context.ops.add_bias({.x = as_matrix(y), .bias = bias});
}
inline void add_bias_gradient(Context& context, ConstTensor dy, Tensor dbias) {
  if (dbias) context.ops.column_sum({.x = as_matrix(dy), .y = dbias});
}

struct TestedMoe : TestedLayer {
  TestedMoe(ParameterBuilder& builder, const MoeSizes& sizes, const std::string& name) : moe(builder, name, sizes, 2) {}
  void forward(Context& context, ConstTensor x, Tensor y) override {
    moe.activate(context, x, saved);
    moe.project(context, saved, y);
  }
  void backward(Context& context, Tensor dy, Tensor dx) override { moe.backward(context, dy, saved, dx); }
  Moe moe;
  Moe::Saved saved;
};

/// Wraps a layer that sees an encoder's output. That output is made of the layer's input, each row and then a multiple
/// of it, so that dx has both gradients, and every rank has the rows that it makes.
template <class Tested>
struct SeeingItsInput final : TestedLayer {
  template <class... Arguments>
  explicit SeeingItsInput(ParameterBuilder& builder, const Arguments&... arguments) : layer(builder, arguments...) {}
  void forward(Context& context, ConstTensor x, Tensor y) override {
    memory = context.saved->allocate("memory", shape_of_memory(x), x.dtype());
    for (std::int64_t row = 0; row < x.dim(0); ++row) {
      context.ops.copy(x.slice(0, row, 1), memory.slice(0, 2 * row, 1));
      context.ops.copy(x.slice(0, row, 1), memory.slice(0, 2 * row + 1, 1));
      context.ops.scale(memory.slice(0, 2 * row + 1, 1), kMultiple);
    }
    context.memory = {.states = memory, .gradient = {}};
    layer.forward(context, x, y);
  }
  void backward(Context& context, Tensor dy, Tensor dx) override {
    const ArenaScope scope(context.scratch);
    const Tensor dmemory = context.scratch.allocate("gradient of the memory", shape_of_memory(dx), dx.dtype());
    context.ops.fill(dmemory, 0);
    context.memory = {.states = memory, .gradient = dmemory};
    layer.backward(context, dy, dx);
    for (std::int64_t row = 0; row < dx.dim(0); ++row) {
      const Tensor second = dmemory.slice(0, 2 * row + 1, 1);
      context.ops.scale(second, kMultiple);
      context.ops.add(dmemory.slice(0, 2 * row, 1), dx.slice(0, row, 1));
      context.ops.add(second, dx.slice(0, row, 1));
    }
  }
  static Shape shape_of_memory(const ConstTensor& x) { return {2 * x.dim(0), x.dim(1), x.dim(2)}; }
  static constexpr double kMultiple = -0.5;
  Tested layer;
  Tensor memory;
};

}  // namespace megatron::test
