#include "models/experts/experts.h"

namespace megatron {

Experts::Experts(ParameterBuilder& builder, const std::string& name, const MlpSizes& sizes, std::int64_t first,
                 std::int64_t count)
    : store_(&builder.store()),
      sizes_(sizes),
      records_(is_gated(sizes.activation) ? 2 : 1),
      adds_down_bias_(builder.region().rank() == 0) {
  const std::vector<std::string> ups =
      records_ == 2 ? std::vector<std::string>{".gate", ".up"} : std::vector<std::string>{".up"};
  for (std::int64_t k = first; k < first + count; ++k) {
    const std::string expert = name + "." + std::to_string(k);
    Part part;
    for (const std::string& up : ups) {
      const int index = builder.column_parallel_weight(Role::matrix, expert + up + ".weight", sizes.ffn, sizes.hidden,
                                                       sizes.deviation, /*adjacent=*/part.up != kNone);
      if (part.up == kNone) part.up = index;
    }
    for (const std::string& up : ups) {
      if (!sizes.bias) break;
      const int index =
          builder.column_parallel_bias(expert + up + ".bias", sizes.ffn, /*adjacent=*/part.up_bias != kNone);
      if (part.up_bias == kNone) part.up_bias = index;
    }
    part.down = builder.row_parallel_weight(expert + ".down.weight", sizes.hidden, sizes.ffn, sizes.output_deviation);
    if (sizes.bias) {
      part.down_bias = builder.replicated_vector_partial_gradient(Role::vector, expert + ".down.bias", sizes.hidden, 0);
    }
    parts_.push_back(part);
  }
}

std::int64_t Experts::local_ffn() const {
  return store_->at(parts_.front().down).box.extent[1];
}

std::int64_t Experts::local_up() const {
  return records_ * local_ffn();
}

ConstTensor Experts::up_weight(const Part& part) const {
  return store_->joint_value(part.up, records_, sizes_.hidden);
}

ConstTensor Experts::up_bias(const Part& part) const {
  return sizes_.bias ? ConstTensor(store_->joint_value(part.up_bias, records_, 0)) : ConstTensor();
}

void Experts::activate(Context& context, std::int64_t index, ConstTensor x, Tensor up, Tensor activated) const {
  const Part& part = parts_[static_cast<std::size_t>(index)];
  context.ops.linear_activation_forward({.x = x,
                                         .weight = up_weight(part),
                                         .bias = up_bias(part),
                                         .product = up,
                                         .y = activated,
                                         .activation = sizes_.activation,
                                         .again = kept() == KeptInner::product});
  context.progress();
}

void Experts::activate_again(Context& context, std::int64_t index, ConstTensor up, Tensor activated) const {
  const Part& part = parts_[static_cast<std::size_t>(index)];
  context.ops.activation_again({.product = up, .bias = up_bias(part), .y = activated, .activation = sizes_.activation});
}

void Experts::forward(Context& context, std::int64_t index, ConstTensor x, Tensor up, Tensor activated,
                      Tensor y) const {
  const Part& part = parts_[static_cast<std::size_t>(index)];
  activate(context, index, x, up, activated);
  const bool bias = sizes_.bias && adds_down_bias_;
  context.ops.linear_forward({.x = activated,
                              .weight = store_->at(part.down).value,
                              .bias = bias ? ConstTensor(store_->at(part.down_bias).value) : ConstTensor(),
                              .y = y});
  context.progress();
}

void Experts::backward(Context& context, std::int64_t index, ConstTensor dy, ConstTensor x, Tensor up,
                       ConstTensor activated, Tensor dx) const {
  const Part& part = parts_[static_cast<std::size_t>(index)];
  const ArenaScope scope(context.scratch);
  const Tensor dactivated = context.scratch.allocate("expert gradient", activated.shape(), activated.dtype());
  Context at_down = kept() == KeptInner::all ? context : context.at_once(),
          at_up = kept() == KeptInner::none ? context.at_once() : context;
  const Tensor dup = at_up.weight_gradients->place(up, [&] {
    return records_ == 2 ? context.scratch.allocate("expert up gradient", up.shape(), up.dtype()) : dactivated;
  });
  const Parameter& down = store_->at(part.down);
  context.ops.linear_activation_backward(
      {.dy = dy,
       .weight = down.value,
       .product = up,
       .bias = up_bias(part),
       .dactivated = dactivated,
       .dproduct = dup,
       .dbias = sizes_.bias ? store_->joint_gradient(part.up_bias, records_, 0) : Tensor(),
       .activation = sizes_.activation});
  context.progress();
  if (sizes_.bias && adds_down_bias_) context.ops.column_sum({.x = dy, .y = store_->at(part.down_bias).gradient});
  const auto add = [](Context& at, ConstTensor gradient_rows, ConstTensor input, Tensor gradient) {
    const WeightProduct product{
        .layer = WeightProduct::Layer::whole, .dy = gradient_rows, .x = input, .gradient = gradient};
    at.weight_gradients->add(at, product, at.weight_gradients->start_gather(at, product));
  };
  add(at_down, dy, activated, down.gradient);
  context.ops.matmul({.a = dup, .b = up_weight(part), .c = dx});
  context.progress();
  add(at_up, dup, x, store_->joint_gradient(part.up, records_, sizes_.hidden));
}

}  // namespace megatron
