// Feed-forward parts and mixtures of experts as layer cases.
#include "distributed/comm/counting_communicator.h"
#include "models/layers/layer_cases.h"

namespace megatron::test {

namespace {

Communicator& alone() {
  static CountingCommunicator one(0, 1);
  return one;
}

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

}  // namespace

MoeSizes moe_sizes(std::int64_t experts, std::int64_t top_k) {
  return {.router = {.hidden = kHidden, .experts = experts, .top_k = top_k, .deviation = 0.02},
          .expert = {.hidden = kHidden, .ffn = kFeedForward / 2},
          .capacity_factor = 1,
          .evaluation_capacity_factor = 1,
          .expert_ranks = &alone()};
}

void add_feed_forward_cases(CaseList& cases) {
  const auto add_mlp = [&](const std::string& name, const MlpSizes& sizes) {
    cases.add<TestedMlp>(name, kHidden, kHidden, sizes);
  };
  const auto add_moe = [&](const std::string& name, const MoeSizes& sizes, const std::string& parameters = "moe") {
    LayerCase& layer = cases.add<TestedMoe>(name, kHidden, kHidden, sizes, parameters);
    // Small steps, which change no choice with these parameters.
    if (sizes.router.top_k < sizes.router.experts) layer.step = 0.001f;
  };
  add_mlp("Mlp", kMlpSizes);
  for (const ActivationRow& row : kActivations) {
    if (row.activation == Activation::gelu || row.activation == Activation::relu) continue;  // relu has a kink
    add_mlp("Mlp with " + std::string(row.name),
            {.hidden = kHidden, .ffn = kFeedForward, .activation = row.activation});
  }
  add_mlp("Mlp without biases", {.hidden = kHidden, .ffn = kFeedForward, .bias = false});
  MoeSizes moe = moe_sizes(3, 3);
  add_moe("Experts", moe);
  moe.router.renormalize = false;
  moe.router.balance_term = moe.router.z_term = 0;
  moe.expert.activation = Activation::swiglu;
  moe.expert.bias = false;
  add_moe("Gated experts without biases, with terms of the loss", moe);
  moe = moe_sizes(4, 2);
  add_moe("Experts, of which each token goes to two", moe, "moe1");
  moe.capacity_factor = 0.75;
  moe.router.random_drop = true;
  add_moe("Experts with too little room", moe, "moe1");
  moe = moe_sizes(3, 3);
  moe.router.jitter = 0.4;
  moe.router.z_term = 0;
  add_moe("Experts whose router's input is noisy", moe);
  moe = moe_sizes(4, 2);
  moe.buffer = 1;
  add_moe("Experts without drops, in several rounds", moe, "moe1");
  moe.router.balance_term = moe.router.z_term = 0;
  moe.router.top_k = 1;
  moe.router.renormalize = false;
  moe.expert.activation = Activation::swiglu;
  moe.expert.bias = false;
  add_moe("Gated experts without drops and biases, with terms of the loss", moe, "moe1");
}

}  // namespace megatron::test
