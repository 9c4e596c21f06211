// Layers with experts and a dense part, and routers with noise, as layer cases.
#include "models/layers/layer_cases.h"

namespace megatron::test {

namespace {

using Mix = DensePartSizes::Mix;

struct TestedExpertLayer final : TestedLayer {
  TestedExpertLayer(ParameterBuilder& builder, const ExpertLayerSizes& sizes) : layer(builder, "moe", sizes, 2) {}
  void forward(Context& context, ConstTensor x, Tensor y) override {
    layer.activate(context, x, saved);
    layer.project(context, saved, y);
  }
  void backward(Context& context, Tensor dy, Tensor dx) override { layer.backward(context, dy, saved, dx); }
  ExpertLayer layer;
  ExpertLayer::Saved saved;
};

}  // namespace

ExpertLayerSizes with_dense_part(const MoeSizes& experts, Mix mix, const MlpSizes& mlp) {
  return {experts, {.mix = mix, .mlp = mlp}};
}

void add_expert_layer_cases(CaseList& cases) {
  const auto add = [&](const std::string& name, const ExpertLayerSizes& sizes) {
    cases.add<TestedExpertLayer>(name, kHidden, kHidden, sizes);
  };
  MoeSizes experts = moe_sizes(3, 3);
  add("Experts without a dense part, in an expert layer", {experts});
  add("Shared experts", with_dense_part(experts, Mix::sum, kMlpSizes));
  add("Shared experts behind a gate", with_dense_part(experts, Mix::sigmoid, kMlpSizes));
  add("Residual experts", with_dense_part(experts, Mix::softmax, kMlpSizes));
  MlpSizes gated = kMlpSizes;
  gated.activation = experts.expert.activation = Activation::swiglu;
  gated.bias = experts.expert.bias = false;
  add("Gated shared experts without biases", with_dense_part(experts, Mix::sum, gated));
  add("Gated shared experts without biases, behind a gate", with_dense_part(experts, Mix::sigmoid, gated));
  experts.router.jitter = 0.3;
  experts.router.balance_term = 0;
  add("Gated residual experts without biases, with noise", with_dense_part(experts, Mix::softmax, gated));
}

}  // namespace megatron::test
