#include "models/experts/router.h"

#include "models/layers/as_matrix.h"

namespace megatron {

namespace {

/// Input of the router: x itself, or x with noise, in memory that is allocated for it.
template <class Allocate>
ConstTensor with_jitter(Context& context, const Jitter& jitter, ConstTensor x, const Allocate& allocate) {
  if (jitter.amount == 0) return x;
  const Tensor y = allocate();
  context.ops.jitter_rows({.x = x, .y = y, .jitter = jitter});
  return y;
}

}  // namespace

Router::Router(ParameterBuilder& builder, const std::string& name, const RouterSizes& sizes, std::int64_t layer)
    : store_(&builder.store()),
      sizes_(sizes),
      weight_(builder.replicated_matrix(Role::router, name + ".weight", sizes.experts, sizes.hidden, sizes.deviation)),
      choice_bias_(sizes.choice_bias
                       ? builder.untrained_vector(Role::router, name + ".choice_bias", sizes.experts, sizes.row)
                       : kNone),
      layer_(layer) {}

Router::Saved Router::make_saved(Context& context, const ExpertSlots& layout) const {
  const std::int64_t s = context.rows().sequence, b = context.micro_batch.samples, experts = sizes_.experts,
                     k = sizes_.top_k;
  Arena& keep = *context.saved;
  Saved saved;
  saved.probabilities = keep.allocate("router probabilities", {s, b, experts}, DType::f32);
  saved.gates = keep.allocate("router gates", {s, b, k}, DType::f32);
  saved.log_sums = keep.allocate("router log sums", {s * b}, DType::f32);
  saved.chosen = keep.allocate("chosen experts", {s, b, k}, DType::i32);
  if (layout.capacity > 0) {
    const std::int64_t whole = context.whole_sequence();
    saved.whole_gates =
        context.divided() ? keep.allocate("gates of whole samples", {whole, b, k}, DType::f32) : saved.gates;
    saved.slots = keep.allocate("slots of tokens", {whole, b, k}, DType::i32);
    saved.entries = keep.allocate("tokens of slots", {layout.count(b)}, DType::i32);
  }
  saved.counts = keep.allocate("tokens per expert", {b, experts}, DType::i32);
  return saved;
}

void Router::forward(Context& context, ConstTensor x, const ExpertSlots& layout, const Saved& saved) const {
  const ArenaScope scope(context.scratch);
  const ConstTensor input = with_jitter(context, context.router_jitter(sizes_.jitter, layer_, 0, x.dim(0)), x, [&] {
    return context.scratch.allocate("noisy router input", x.shape(), x.dtype());
  });
  const Tensor logits = context.scratch.allocate("router logits", saved.probabilities.shape(), DType::f32);
  const RouteTally* const tally = context.routes();
  const Tensor gaps =
      tally == nullptr ? Tensor() : context.scratch.allocate("router gaps", saved.log_sums.shape(), DType::f32);
  context.ops.matmul(
      {.a = as_matrix(input), .b = store_->at(weight_).value, .transpose_b = true, .c = as_matrix(logits)});
  context.ops.route_forward({.logits = as_matrix(logits),
                             .choice_bias = choice_bias_ == kNone ? Tensor() : store_->state(choice_bias_).value,
                             .probabilities = as_matrix(saved.probabilities),
                             .chosen = as_matrix(saved.chosen),
                             .gates = as_matrix(saved.gates),
                             .log_sums = saved.log_sums,
                             .gaps = gaps,
                             .renormalize = sizes_.renormalize});
  ConstTensor chosen = saved.chosen;
  if (context.divided()) {
    const Tensor whole = context.scratch.allocate("experts of whole samples",
                                                  {context.whole_sequence(), chosen.dim(1), chosen.dim(2)}, DType::i32);
    context.context_region->gather_rows(context.ops, context.scratch, chosen, whole, kChoicesOfRows);
    chosen = whole;
    if (saved.whole_gates) {
      context.context_region->gather_rows(context.ops, context.scratch, saved.gates, saved.whole_gates, kGatesOfRows);
    }
  }
  context.ops.plan_routes({.chosen = chosen,
                           .layout = layout,
                           .order = sizes_.random_drop ? context.place_order(layer_) : PlaceOrder(),
                           .slots = saved.slots,
                           .entries = saved.entries,
                           .counts = saved.counts});
  if (tally != nullptr) {
    // All context ranks have the counts of whole samples: one of them adds these up. All take as much memory.
    const Tensor spare = context.divided() ? context.scratch.allocate("choices that another rank counts",
                                                                      {1, sizes_.experts + 1}, DType::f64)
                                           : Tensor();
    const bool first = context.context_rank() == 0;
    const Tensor choices = first ? tally->choices.slice(0, sizes_.row, 1) : spare;
    if (!first) context.ops.fill(choices, 0);
    context.ops.tally_routes({.counts = saved.counts,
                              .gaps = gaps,
                              // Where no places were planned, the experts take all tokens of a sample.
                              .capacity = layout.capacity > 0 ? layout.capacity : context.whole_sequence(),
                              .choices = choices,
                              .least_gap = tally->least_gap});
  }
  const auto sum_of = [&](int term) { return term == kNone ? Tensor() : context.loss_sum(term); };
  const Tensor balance = sum_of(sizes_.balance_term), z = sum_of(sizes_.z_term);
  if (!balance && !z) return;
  context.ops.route_losses({.probabilities = saved.probabilities,
                            .counts = saved.counts,
                            .log_sums = saved.log_sums,
                            .top_k = sizes_.top_k,
                            .sequence = context.whole_sequence(),
                            .balance = balance,
                            .z = z});
}

void Router::backward(Context& context, ConstTensor dgates, ConstTensor x, const Saved& saved, Tensor dx) const {
  const auto scale_of = [&](int term) {
    return term == kNone ? 0.0f : static_cast<float>(context.gradient_scale(term));
  };
  const std::int64_t s = saved.probabilities.dim(0), b = saved.probabilities.dim(1), experts = sizes_.experts;
  const ArenaScope scope(context.scratch);
  const Tensor dlogits = context.scratch.allocate("router gradient", {s, b, experts}, DType::f32);
  context.ops.route_backward({.probabilities = saved.probabilities,
                              .chosen = as_matrix(saved.chosen),
                              .counts = saved.counts,
                              .log_sums = saved.log_sums,
                              .dgates = as_matrix(dgates),
                              .sequence = context.whole_sequence(),
                              .dlogits = as_matrix(dlogits),
                              .renormalize = sizes_.renormalize,
                              .balance_scale = scale_of(sizes_.balance_term),
                              .z_scale = scale_of(sizes_.z_term)});
  // Every tensor rank has the gradient of all rows; under sequence parallelism it answers for its own.
  const std::int64_t rows = x.dim(0), first_row = context.region.local_sequence_offset(s);
  const ConstTensor own = dlogits.slice(0, first_row, rows);
  Context at_input = context.reading_input();
  WeightGradients& products = *at_input.weight_gradients;
  const Tensor converted = products.allocate(at_input, "router gradient of rows", {rows, b, experts}, x.dtype());
  context.ops.copy(own, converted);
  const Jitter jitter = context.router_jitter(sizes_.jitter, layer_, first_row, rows);
  const ConstTensor input = with_jitter(
      context, jitter, x, [&] { return products.allocate(at_input, "noisy router input", x.shape(), x.dtype()); });
  const ConstTensor weight = store_->at(weight_).value;
  if (jitter.amount == 0) {
    context.ops.matmul({.a = as_matrix(converted), .b = weight, .c = as_matrix(dx), .accumulate = true});
  } else {
    const Tensor dinput = context.scratch.allocate("noisy router input's gradient", dx.shape(), dx.dtype());
    context.ops.matmul({.a = as_matrix(converted), .b = weight, .c = as_matrix(dinput)});
    context.ops.jitter_rows({.x = dinput, .y = dx, .accumulate = true, .jitter = jitter});
  }
  const WeightProduct product{
      .layer = WeightProduct::Layer::whole, .dy = converted, .x = input, .gradient = store_->at(weight_).gradient};
  products.add(at_input, product, products.start_gather(at_input, product));
}

}  // namespace megatron
