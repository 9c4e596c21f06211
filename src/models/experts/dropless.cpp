// Mixture of experts without drops. Each rank sends an expert at most `place` rows at a time, so that all buffers have
// a fixed size; what is more follows in further rounds through the same buffers. The expert ranks agree on how many
// rounds an expert takes, numbers that the host reads: the only ones in a layer. A rank with all experts
// computes the rows that are filled. Several ranks each fill a part of an expert's rows, and all of these are computed.
//
// Outputs and gradients return to the choices that they belong to, in buffers of [tokens · k, h], so that sums over a
// token's experts have one order, however many rounds there were. The activations of the first round are kept, those of
// later ones computed again in backward, in scratch. So the weight gradients of experts run at once.
#include <algorithm>
#include <array>
#include <cmath>

#include "models/experts/expert_exchange.h"
#include "models/experts/moe.h"

namespace megatron {

template <class AnyTensor>
AnyTensor Moe::own_rows(const Context& context, AnyTensor whole) const {
  if (!exchanges()) return whole;
  const std::int64_t s = whole.dim(0);
  return whole.slice(0, context.region.local_sequence_offset(s), context.region.local_sequence_length(s));
}

ExpertSlots Moe::rounds_layout(std::int64_t tokens) const {
  const std::int64_t experts = sizes_.router.experts;
  const double share = static_cast<double>(tokens * sizes_.router.top_k) / static_cast<double>(experts);
  // No token chooses an expert twice; any buffer fits an integer.
  const double places = std::min(static_cast<double>(tokens), std::ceil(share * sizes_.buffer));
  const std::int64_t of_round = std::max(static_cast<std::int64_t>(places), std::int64_t{1});
  const std::int64_t rounds = std::max((tokens + of_round - 1) / of_round, std::int64_t{1});
  return {.experts = experts, .capacity = rounds * of_round, .parts = rounds, .groups = ranks_->size()};
}

void Moe::plan_rounds(Context& context, const ExpertSlots& layout, Saved& saved) const {
  const ArenaScope scope(context.scratch);
  const Tensor counts = context.scratch.allocate("tokens of this rank per expert", {1, layout.experts}, DType::i32);
  const ConstTensor chosen = own_rows(context, saved.routes.chosen);
  // As one sample: the places of an expert are those of all samples together.
  context.ops.plan_routes({.chosen = chosen.view({chosen.dim(0) * chosen.dim(1), 1, chosen.dim(2)}),
                           .layout = layout,
                           .order = {},
                           .slots = saved.routes.slots,
                           .entries = saved.routes.entries,
                           .counts = counts});
  if (exchanges()) {
    if (context.region.size() > 1) context.region.communicator().all_reduce(counts, kMostOfExpert);
    ranks_->all_reduce(counts, kMostOfExpertRanks);
  }
  // Experts that are exchanged together take as many rounds as the one with the most tokens, and none without tokens.
  // Counting operations read nothing: a plan of memory plays one whole round.
  saved.rounds = ExpertRounds(experts_.count(), layout.part_capacity());
  constexpr std::int32_t unread = -1;
  std::array<std::int32_t, 256> read{};
  read.fill(unread);
  const auto most_read = static_cast<std::int64_t>(read.size());
  for (std::int64_t first = 0; first < layout.experts; first += most_read) {
    const std::int64_t count = std::min(most_read, layout.experts - first);
    context.ops.read(counts.view({layout.experts}).slice(0, first, count), read.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t tokens = read[static_cast<std::size_t>(i)];
      saved.rounds.raise((first + i) % experts_.count(), tokens == unread ? layout.part_capacity() : tokens);
    }
  }
}

void Moe::dispatch_round(Context& context, ConstTensor tokens, ConstTensor gates, const Saved& saved,
                         std::int64_t round, Tensor to) const {
  const ExpertRows rows{
      .experts = experts_.count(), .sent = {}, .inputs = {}, .outputs = {}, .rounds = &saved.rounds, .round = round};
  for (std::int64_t i = rows.next(0); i < rows.experts; i = rows.next(i + 1)) {
    const Tensor all = of_expert(to, i, rows.experts), filled = exchanges() ? all : rows.filled(all, i);
    const std::int64_t first = (round * rows.experts + i) * all.dim(0);
    context.ops.dispatch_rows({.x = as_matrix(tokens),
                               .entries = saved.routes.entries.slice(0, first, filled.dim(0)),
                               .gates = gates,
                               .top_k = sizes_.router.top_k,
                               .y = filled});
  }
}

void Moe::collect_round(Context& context, ConstTensor returned, const Saved& saved, std::int64_t round,
                        Tensor choices) const {
  context.ops.combine_rows({.x = returned,
                            .slots = saved.routes.slots.view({choices.dim(0), 1}),
                            .first_slot = round * returned.dim(0),
                            .gates = {},
                            .y = choices,
                            .accumulate = round > 0});
}

Moe::LaterRounds Moe::allocate_later_rounds(Context& context, const Saved& saved) const {
  const std::int64_t rows = saved.inputs.dim(1);
  if (rounds_layout(saved.outputs.dim(0) / sizes_.router.top_k).parts == 1) {
    return {.inputs = {}, .inner = allocate_inner(context, rows, /*all=*/false)};
  }
  // Whether there are such rounds in this step or not: the memory must not depend on it.
  return {.inputs = context.scratch.allocate("expert inputs of a round", saved.inputs.shape(), saved.inputs.dtype()),
          .inner = allocate_inner(context, rows, /*all=*/true)};
}

void Moe::activate_rounds(Context& context, ConstTensor x, Saved& saved) const {
  const std::int64_t experts = experts_.count(), k = sizes_.router.top_k, h = x.dim(2);
  const DType type = context.pass.activation_type;
  Arena& keep = *context.saved;
  const std::int64_t s = context.rows().sequence, b = x.dim(1);
  const std::int64_t tokens = b * (exchanges() ? context.region.local_sequence_length(s) : s);
  const ExpertSlots layout = rounds_layout(tokens);
  const std::int64_t slots = layout.experts * layout.part_capacity();  // in one round
  const std::int64_t rows = slots / experts * (exchanges() ? context.region.size() : 1);
  saved.x = x;
  const ExpertSlots without_places{.experts = layout.experts};
  const Router::Saved routes = router_.make_saved(context, without_places);
  saved.routes = routes;
  saved.routes.slots = keep.allocate("slots of tokens", {tokens, k}, DType::i32);
  // A size that grows with the number of tokens; the layout's may be a little smaller for more of them.
  saved.routes.entries =
      keep.allocate("tokens of slots", {layout.experts * tokens + slots}, DType::i32).slice(0, 0, layout.count(1));
  saved.inputs = keep.allocate("expert inputs", {experts, rows, h}, type);
  keep_inner(context, rows, saved);
  saved.outputs = keep.allocate("expert outputs", {tokens * k, h}, type);

  const ArenaScope scope(context.scratch);
  const ConstTensor whole = context.region.enter(context.scratch, x);
  router_.forward(context, whole, without_places, routes);
  plan_rounds(context, layout, saved);

  const LaterRounds later = allocate_later_rounds(context, saved);
  const Tensor returned = context.scratch.allocate("outputs of a round", {slots, h}, type);
  const Tensor tokens_sent =
      exchanges() ? context.scratch.allocate("tokens for experts", returned.shape(), type) : Tensor();
  for (std::int64_t round = 0; round < saved.rounds.most(); ++round) {
    const bool first = round == 0;
    const Tensor inputs = first ? saved.inputs : later.inputs, sent = exchanges() ? tokens_sent : inputs;
    dispatch_round(context, exchanges() ? x : whole, {}, saved, round, sent);
    const ExpertRows through{.experts = experts,
                             .sent = sent,
                             .inputs = inputs,
                             .outputs = returned,
                             .rounds = &saved.rounds,
                             .round = round};
    through_experts(context, *ranks_, through, [&](std::int64_t i, ConstTensor input, Tensor output) {
      const Inner inner = (first ? inner_of(saved, later.inner, i) : later.inner).first(input.dim(0));
      experts_.forward(context, i, input, inner.up, inner.activated, output);
    });
    collect_round(context, returned, saved, round, saved.outputs);
  }
}

void Moe::project_rounds(Context& context, const Saved& saved, Tensor y) const {
  const ArenaScope scope(context.scratch);
  const Tensor sum = exchanges() ? y : context.region.partial_sum_buffer(context.scratch, y);
  context.ops.combine_rows({.x = saved.outputs,
                            .slots = {},
                            .gates = as_matrix(own_rows(context, saved.routes.gates)),
                            .y = as_matrix(sum)});
  if (!exchanges()) context.region.start_leave(sum, y, kOutputShares).wait();
}

void Moe::exchange_inputs(Context& context, const Saved& saved, std::int64_t round, Tensor inputs) const {
  const ArenaScope scope(context.scratch);
  const ConstTensor tokens = exchanges() ? saved.x : context.region.enter(context.scratch, saved.x);
  const std::int64_t h = tokens.dim(2);
  const Tensor sent = exchanges()
                          ? context.scratch.allocate("tokens for experts, again",
                                                     {inputs.elements() / h / context.region.size(), h}, inputs.dtype())
                          : inputs;
  dispatch_round(context, tokens, {}, saved, round, sent);
  const ExpertRows through{.experts = experts_.count(),
                           .sent = sent,
                           .inputs = inputs,
                           .outputs = {},
                           .rounds = &saved.rounds,
                           .round = round};
  through_experts(context, *ranks_, through, [](std::int64_t, ConstTensor, Tensor) {});
}

void Moe::gates_back(Context& context, ConstTensor dy, const Saved& saved, Tensor dgates) const {
  const ArenaScope scope(context.scratch);
  Communicator& tensor = context.region.communicator();
  const bool parts = exchanges() && tensor.size() > 1;
  const Tensor own =
      parts ? context.scratch.allocate("gradient of own gates", own_rows(context, dgates).shape(), dgates.dtype())
            : dgates;
  context.ops.combine_gates_backward({.x = saved.outputs, .slots = {}, .dy = as_matrix(dy), .dgates = as_matrix(own)});
  if (parts) tensor.all_gather(own, dgates, kOwnGates);
  if (!exchanges() && tensor.size() > 1) tensor.all_reduce(dgates, kGateShares);  // made of outputs that are shares
}

void Moe::backward_rounds(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const {
  const ArenaScope scope(context.scratch);
  const std::int64_t experts = experts_.count();
  const DType type = saved.outputs.dtype();
  const Tensor dgates = context.scratch.allocate("gradient of gates", saved.routes.gates.shape(), DType::f32);
  const Tensor dchoices = context.scratch.allocate("gradient of tokens by choice", saved.outputs.shape(), type);
  {
    const ArenaScope inner(context.scratch);
    const ConstTensor tokens = exchanges() ? dy : context.region.enter(context.scratch, dy);
    const ConstTensor gates = as_matrix(own_rows(context, saved.routes.gates));
    gates_back(context, tokens, saved, dgates);
    const LaterRounds later = allocate_later_rounds(context, saved);
    Context at_once = context.at_once();
    for (std::int64_t round = 0; round < saved.rounds.most(); ++round) {
      const bool first = round == 0;
      // This takes less scratch than what follows, which the first round takes too.
      if (!first) exchange_inputs(context, saved, round, later.inputs);
      const ArenaScope of_round(context.scratch);
      const std::int64_t parts = exchanges() ? context.region.size() : 1;
      const Tensor douts = context.scratch.allocate("gradient of expert outputs", saved.inputs.shape(), type);
      const Tensor returned =
          context.scratch.allocate("gradients of a round", {douts.elements() / dy.dim(2) / parts, dy.dim(2)}, type);
      const Tensor sent =
          exchanges() ? context.scratch.allocate("gradients for experts", returned.shape(), type) : douts;
      dispatch_round(context, tokens, gates, saved, round, sent);
      const ExpertRows through{.experts = experts,
                               .sent = sent,
                               .inputs = douts,
                               .outputs = returned,
                               .rounds = &saved.rounds,
                               .round = round};
      through_experts(context, *ranks_, through, [&](std::int64_t i, ConstTensor dout, Tensor dinput) {
        const std::int64_t filled = dout.dim(0);
        const ConstTensor input = of_expert(first ? saved.inputs : later.inputs, i, experts).slice(0, 0, filled);
        const Inner made = (first ? inner_of(saved, later.inner, i) : later.inner).first(filled);
        if (first) {
          complete(at_once, i, input, made);
        } else {
          experts_.activate(at_once, i, input, made.up, made.activated);
        }
        experts_.backward(at_once, i, dout, input, made.up, made.activated, dinput);
      });
      collect_round(context, returned, saved, round, dchoices);
    }
  }
  {
    const ArenaScope inner(context.scratch);
    const Tensor sum = exchanges() ? dx : context.region.partial_sum_buffer(context.scratch, dx);
    context.ops.combine_rows({.x = dchoices, .slots = {}, .gates = {}, .y = as_matrix(sum)});
    if (!exchanges()) context.region.start_leave(sum, dx, kInputGradientShares).wait();
  }
  router_.backward(context, dgates, saved.x, saved.routes, dx);
}

}  // namespace megatron
