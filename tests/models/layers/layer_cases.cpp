// The layers of nn/ behind the common interface of layer_on_ranks.h: linear layers and norms here, others in
// *_cases.cpp.
#include "models/layers/layer_cases.h"

namespace megatron::test {

namespace {

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
    const int weight = builder.column_parallel_weight(Role::matrix, "column.weight", kFeedForward, kHidden, 0.02);
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
    return {builder.store(), weight, builder.replicated_vector(Role::vector, "row.bias", kHidden, 0)};
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

}  // namespace

void add_linear_and_norm_cases(CaseList& cases) {
  cases.add<TestedColumnLinear>("ColumnParallelLinear", kHidden, kFeedForward).out_cut = Cut::columns;
  cases.add<TestedRowLinear>("RowParallelLinear", kFeedForward, kHidden).in_cut = Cut::columns;
  for (const NormalizationRow& row : kNormalizations) {
    cases.add<TestedNorm>(std::string(row.name), kHidden, kHidden, row.kind);
  }
}

std::vector<LayerCase> layer_cases(double dropout) {
  CaseList cases;
  add_linear_and_norm_cases(cases);
  add_end_cases(cases, dropout);
  add_attention_cases(cases, dropout);
  add_feed_forward_cases(cases);
  add_expert_layer_cases(cases);
  add_block_cases(cases, dropout);
  return cases.take();
}

LayerCase layer_case(const std::string& name, double dropout) {
  for (LayerCase& layer : layer_cases(dropout)) {
    if (layer.name == name) return layer;
  }
  fail(ErrorKind::internal, "no layer case \"{}\"", name);
}

}  // namespace megatron::test
