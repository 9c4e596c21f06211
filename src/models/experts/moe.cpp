#include "models/experts/moe.h"

#include <algorithm>
#include <cmath>

namespace megatron {

namespace {

std::int64_t experts_here(const MoeSizes& sizes) {
  return exact_division(sizes.router.experts, sizes.expert_ranks->size(), "experts over expert ranks");
}

Experts declare_experts(ParameterBuilder& builder, const std::string& name, const MoeSizes& sizes) {
  ParameterBuilder of_experts = builder.of_experts();
  const std::int64_t count = experts_here(sizes);
  return {of_experts, name, sizes.expert, sizes.expert_ranks->rank() * count, count};
}

/// Places for a sample of `s` tokens, of which none chooses an expert twice.
std::int64_t capacity_of(const MoeSizes& sizes, std::int64_t s, double factor) {
  const double share = static_cast<double>(s * sizes.router.top_k) / static_cast<double>(sizes.router.experts);
  const double places = std::min(static_cast<double>(s), std::ceil(share * factor));  // any factor fits an integer
  return std::min(s, std::max(static_cast<std::int64_t>(places), sizes.minimum_capacity));
}

}  // namespace

Moe::Moe(ParameterBuilder& builder, const std::string& name, const MoeSizes& sizes, std::int64_t layer)
    : sizes_(sizes),
      ranks_(sizes.expert_ranks),
      router_(builder, name + ".router", sizes.router, layer),
      experts_(declare_experts(builder, name + ".experts", sizes)) {}

ExpertSlots Moe::layout(const Context& context) const {
  const std::int64_t s = context.whole_sequence();
  const double factor = context.pass.training ? sizes_.capacity_factor : sizes_.evaluation_capacity_factor;
  const std::int64_t capacity = context.pass.experts_take_all ? s : capacity_of(sizes_, s, factor);
  // Expert ranks exchange each token once, though every tensor rank has it: each sends its part of the places. Context
  // ranks share the places out too, so that each computes as much, wherever the tokens lie.
  return {.experts = sizes_.router.experts, .capacity = capacity, .parts = parts(context), .groups = ranks_->size()};
}

std::int64_t Moe::parts(const Context& context) const {
  return context.context_ranks() * tensor_parts(context);
}

std::int64_t Moe::own_slots(const Router::Saved& routes, const Context& context) const {
  return exact_division(routes.entries.elements(), parts(context), "slots over context and tensor ranks");
}

std::int64_t Moe::first_slot(const Router::Saved& routes, const Context& context) const {
  const std::int64_t part = context.context_rank() * tensor_parts(context) + (exchanges() ? context.region.rank() : 0);
  return part * own_slots(routes, context);
}

ConstTensor Moe::enter(Context& context, ConstTensor x) const {
  return whole_samples(context, context.region.enter(context.scratch, x));
}

ConstTensor Moe::whole_samples(Context& context, ConstTensor rows) const {
  if (!context.divided()) return rows;
  const Tensor whole = context.scratch.allocate("rows of whole samples",
                                                {context.whole_sequence(), rows.dim(1), rows.dim(2)}, rows.dtype());
  context.context_region->gather_rows(context.ops, context.scratch, rows, whole, kRowsOfPlaces);
  return whole;
}

void Moe::leave(Context& context, ConstTensor slots, ConstTensor gates, const Router::Saved& routes,
                const Holding<Hold::partial>& said, Tensor y) const {
  const ArenaScope scope(context.scratch);
  const Tensor share = context.region.partial_sum_buffer(context.scratch, y);
  const Tensor whole = context.divided() ? context.scratch.allocate(
                                               "shares of whole samples",
                                               {context.whole_sequence(), share.dim(1), share.dim(2)}, share.dtype())
                                         : share;
  context.ops.combine_rows({.x = slots,
                            .slots = as_matrix(routes.slots),
                            .first_slot = first_slot(routes, context),
                            .gates = gates,
                            .y = as_matrix(whole)});
  if (context.divided()) context.context_region->sum_rows(context.ops, context.scratch, whole, share, kPlaceShares);
  context.region.start_leave(share, y, said).wait();
}

ConstTensor Moe::own_entries(const Router::Saved& routes, const Context& context) const {
  return routes.entries.slice(0, first_slot(routes, context), own_slots(routes, context));
}

void Moe::keep_inner(Context& context, std::int64_t rows, Saved& saved) const {
  const DType type = context.pass.activation_type;
  const std::int64_t experts = experts_.count();
  if (experts_.kept() != KeptInner::none) {
    saved.up = context.saved->allocate("expert up", {experts, rows, experts_.local_up()}, type);
  }
  if (experts_.kept() == KeptInner::all) {
    saved.activated = context.saved->allocate("expert activated", {experts, rows, experts_.local_ffn()}, type);
  }
}

Moe::Inner Moe::allocate_inner(Context& context, std::int64_t rows, bool all) const {
  const DType type = context.pass.activation_type;
  Inner inner;
  if (all || experts_.kept() == KeptInner::none) {
    inner.up = context.scratch.allocate("up of an expert", {rows, experts_.local_up()}, type);
  }
  if (all || experts_.kept() != KeptInner::all) {
    inner.activated = context.scratch.allocate("activated of an expert", {rows, experts_.local_ffn()}, type);
  }
  return inner;
}

Moe::Inner Moe::inner_of(const Saved& saved, const Inner& shared, std::int64_t index) const {
  return {saved.up ? of_expert(saved.up, index, experts_.count()) : shared.up,
          saved.activated ? of_expert(saved.activated, index, experts_.count()) : shared.activated};
}

void Moe::complete(Context& context, std::int64_t index, ConstTensor input, const Inner& inner) const {
  if (experts_.kept() == KeptInner::none) experts_.activate(context, index, input, inner.up, inner.activated);
  if (experts_.kept() == KeptInner::product) experts_.activate_again(context, index, inner.up, inner.activated);
}

void Moe::activate(Context& context, ConstTensor x, Saved& saved) const {
  if (dropless()) return activate_rounds(context, x, saved);
  const ExpertSlots layout = this->layout(context);
  const std::int64_t experts = experts_.count(), h = x.dim(2), b = x.dim(1);
  const DType type = context.pass.activation_type;
  Arena& keep = *context.saved;
  const std::int64_t rows = tensor_parts(context) * layout.groups * layout.part_capacity() * b;  // one expert's
  saved.x = x;
  saved.routes = router_.make_saved(context, layout);
  saved.inputs = keep.allocate("expert inputs", {experts, rows, h}, type);
  keep_inner(context, rows, saved);
  saved.outputs = keep.allocate("expert outputs", {own_slots(saved.routes, context), h}, type);

  const ArenaScope scope(context.scratch);
  const ConstTensor rows_here = context.region.enter(context.scratch, x);
  router_.forward(context, rows_here, layout, saved.routes);
  const ConstTensor whole = whole_samples(context, rows_here);
  const Tensor sent =
      exchanges() ? context.scratch.allocate("tokens for experts", saved.outputs.shape(), type) : saved.inputs;
  context.ops.dispatch_rows({.x = as_matrix(whole),
                             .entries = own_entries(saved.routes, context),
                             .gates = {},
                             .top_k = sizes_.router.top_k,
                             .y = as_matrix(sent)});
  const Inner shared = allocate_inner(context, rows, /*all=*/false);
  const ExpertRows rows_through{.experts = experts, .sent = sent, .inputs = saved.inputs, .outputs = saved.outputs};
  through_experts(context, *ranks_, rows_through, [&](std::int64_t i, ConstTensor input, Tensor output) {
    const Inner inner = inner_of(saved, shared, i);
    experts_.forward(context, i, input, inner.up, inner.activated, output);
  });
}

void Moe::project(Context& context, const Saved& saved, Tensor y) const {
  if (dropless()) return project_rounds(context, saved, y);
  leave(context, saved.outputs, as_matrix(saved.routes.whole_gates), saved.routes, kOutputShares, y);
}

void Moe::gates_backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dgates) const {
  const ArenaScope scope(context.scratch);
  const Tensor whole = context.divided() ? context.scratch.allocate("gradient of gates of whole samples",
                                                                    saved.routes.whole_gates.shape(), DType::f32)
                                         : dgates;
  context.ops.combine_gates_backward({.x = saved.outputs,
                                      .slots = as_matrix(saved.routes.slots),
                                      .first_slot = first_slot(saved.routes, context),
                                      .dy = as_matrix(dy),
                                      .dgates = as_matrix(whole)});
  if (context.region.size() > 1) context.region.communicator().all_reduce(whole, kGateShares);
  if (context.divided()) {
    context.context_region->sum_rows(context.ops, context.scratch, whole, dgates, kPlaceGateShares);
  }
}

void Moe::backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  if (dropless()) return backward_rounds(context, dy, saved, dx);
  const ArenaScope scope(context.scratch);
  const std::int64_t experts = experts_.count();
  const DType type = saved.outputs.dtype();
  const Tensor dgates = context.scratch.allocate("gradient of gates", saved.routes.gates.shape(), DType::f32);
  // The gradient of the experts' outputs, which are read once more before it is set.
  const Tensor outputs =
      saved.outputs.elements() == saved.inputs.elements() ? saved.outputs.view(saved.inputs.shape()) : Tensor();
  const auto allocate_douts = [&] {
    return context.weight_gradients->allocate(context, "gradient of expert outputs", saved.inputs.shape(), type);
  };
  const Tensor douts = outputs ? context.weight_gradients->place(outputs, allocate_douts) : allocate_douts();
  const Tensor dslots = context.scratch.allocate("gradient of tokens for experts", saved.outputs.shape(), type);
  {
    const ArenaScope inner(context.scratch);
    const ConstTensor whole = enter(context, dy);
    gates_backward(context, whole, saved, dgates);
    const Tensor sent =
        exchanges() ? context.scratch.allocate("gradients for experts", saved.outputs.shape(), type) : douts;
    context.ops.dispatch_rows({.x = as_matrix(whole),
                               .entries = own_entries(saved.routes, context),
                               .gates = as_matrix(saved.routes.whole_gates),
                               .top_k = sizes_.router.top_k,
                               .y = as_matrix(sent)});
    const Inner shared = allocate_inner(context, saved.inputs.dim(1), /*all=*/false);
    const ExpertRows rows{.experts = experts, .sent = sent, .inputs = douts, .outputs = dslots};
    through_experts(context, *ranks_, rows, [&](std::int64_t i, ConstTensor dout, Tensor dinput) {
      const ConstTensor input = of_expert(saved.inputs, i, experts);
      const Inner made = inner_of(saved, shared, i);
      complete(context, i, input, made);
      experts_.backward(context, i, dout, input, made.up, made.activated, dinput);
    });
  }
  leave(context, dslots, {}, saved.routes, kInputGradientShares, dx);
  router_.backward(context, dgates, saved.x, saved.routes, dx);
}

}  // namespace megatron
