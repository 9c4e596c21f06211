#include "models/layers/mlp.h"

#include <vector>

namespace megatron {

namespace {

ColumnParallelLinear declare_up(ParameterBuilder& builder, const std::string& name, const MlpSizes& sizes) {
  std::vector<std::string> records = {name + ".up"};
  if (is_gated(sizes.activation)) records.insert(records.begin(), name + ".gate");
  int weight = kNone, bias = kNone;
  for (const std::string& record : records) {
    const int index =
        builder.column_parallel_weight(Role::matrix, record + ".weight", sizes.ffn, sizes.hidden, sizes.deviation,
                                       /*adjacent=*/&record != &records.front());
    if (&record == &records.front()) weight = index;
  }
  for (const std::string& record : records) {
    if (!sizes.bias) break;
    const int index =
        builder.column_parallel_bias(record + ".bias", sizes.ffn, /*adjacent=*/&record != &records.front());
    if (&record == &records.front()) bias = index;
  }
  return {builder.store(), weight, bias, static_cast<int>(records.size()), sizes.hidden};
}

RowParallelLinear declare_down(ParameterBuilder& builder, const std::string& name, const MlpSizes& sizes) {
  const int weight =
      builder.row_parallel_weight(name + ".down.weight", sizes.hidden, sizes.ffn, sizes.output_deviation);
  const int bias = sizes.bias ? builder.replicated_vector(Role::vector, name + ".down.bias", sizes.hidden, 0) : kNone;
  return {builder.store(), weight, bias};
}

}  // namespace

Mlp::Mlp(ParameterBuilder& builder, const std::string& name, const MlpSizes& sizes)
    : activation_(sizes.activation),
      kept_(sizes.kept),
      up_(declare_up(builder, name, sizes)),
      down_(declare_down(builder, name, sizes)) {}

void Mlp::forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const {
  activate(context, x, saved);
  project(context, saved, y);
}

void Mlp::activate(Context& context, ConstTensor x, Saved& saved) const {
  const std::int64_t s = context.rows().sequence, b = context.micro_batch.samples;
  const DType type = context.pass.activation_type;
  Arena& of_up = kept_ == KeptInner::none ? context.scratch : *context.saved;
  Arena& of_activated = kept_ == KeptInner::all ? *context.saved : context.scratch;
  saved.x = x;
  saved.up = of_up.allocate("mlp up", {s, b, up_.local_out()}, type);
  saved.activated = of_activated.allocate("mlp activated", {s, b, down_.local_in()}, type);
  make(context, saved);
}

void Mlp::make(Context& context, Saved& saved) const {
  up_.forward(context, saved.x, activation_, saved.up, saved.activated, /*again=*/kept_ == KeptInner::product);
}

Mlp::Saved Mlp::complete(Context& context, const Saved& saved) const {
  if (kept_ == KeptInner::all) return saved;
  const auto again = [&](const char* what, const Tensor& like) {
    return context.scratch.allocate(what, like.shape(), like.dtype());
  };
  Saved complete = saved;
  complete.activated = again("mlp activated, again", saved.activated);
  if (kept_ == KeptInner::none) {
    complete.up = again("mlp up, again", saved.up);
    make(context, complete);
  } else {
    context.ops.activation_again({.product = as_matrix(saved.up),
                                  .bias = up_.bias(),
                                  .y = as_matrix(complete.activated),
                                  .activation = activation_});
  }
  return complete;
}

void Mlp::project(Context& context, const Saved& saved, Tensor y) const {
  down_.forward(context, saved.activated, y);
}

void Mlp::backward(Context& context, ConstTensor dy, const Saved& kept, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  const Saved saved = complete(context, kept);
  Context at_down = at_output(context), at_up = kept_ == KeptInner::none ? context.at_once() : context.reading_input();
  const Tensor dactivated = context.scratch.allocate("mlp gradient", saved.activated.shape(), saved.activated.dtype());
  const Tensor dup = at_up.weight_gradients->place(saved.up, [&] {
    return is_gated(activation_) ? context.scratch.allocate("mlp up gradient", saved.up.shape(), saved.up.dtype())
                                 : dactivated;
  });

  down_.backward(at_down, dy, saved.activated,
                 {.dy = {},
                  .weight = {},
                  .product = as_matrix(saved.up),
                  .bias = up_.bias(),
                  .dactivated = as_matrix(dactivated),
                  .dproduct = as_matrix(dup),
                  .dbias = up_.bias_gradient(),
                  .activation = activation_});
  up_.backward(at_up, dup, saved.x, dx);
}

}  // namespace megatron
