// A mixture of experts in place of a block's feed-forward part (Shazeer et al. 2017; Lepikhin et al. 2020): a router
// sends each token to k of E experts and adds their outputs up by its weights. Expert ranks divide the experts among
// them and exchange tokens; tensor ranks cut each expert. docs/mixture_of_experts.md draws the flow.
//
// All buffers have the size that follows from the capacity: nothing depends on what the router chooses. Without drops
// (dropless.cpp) it follows from the even share, and more tokens go through the same buffers in further rounds.
#pragma once

#include <string>

#include "models/experts/expert_exchange.h"
#include "models/experts/experts.h"
#include "models/experts/router.h"

namespace megatron {

struct MoeSizes {
  RouterSizes router;
  MlpSizes expert;  ///< one expert's
  double capacity_factor = 1, evaluation_capacity_factor = 1;
  std::int64_t minimum_capacity = 1;
  double buffer = 0;  ///< above 0: no token is dropped; a round takes this multiple of the even share of an expert
  Communicator* expert_ranks = nullptr;  ///< that divide the experts among them: the grid's
};

class Moe {
 public:
  struct Saved {
    ConstTensor x;  ///< [s(/t), b, h]
    Router::Saved routes;
    Tensor inputs;         ///< for the experts here [experts here, rows of one, h]
    Tensor up, activated;  ///< [experts here, rows of one, f/t], up with a gate twice as wide; absent if not kept
    Tensor outputs;        ///< by slot, of this rank's tokens [slots, h]: of a group without expert ranks, shares
    // Without drops `inputs`, `up` and `activated` are of the first round, and `outputs` by choice [tokens · k, h].
    ExpertRounds rounds;
  };

  /// Declares NAME.router.weight and NAME.experts.K.…; `layer` is the global index.
  Moe(ParameterBuilder& builder, const std::string& name, const MoeSizes& sizes, std::int64_t layer);

  void activate(Context& context, ConstTensor x, Saved& saved) const;  ///< everything that backward reads
  /// Sets y [s(/t), b, h], with the experts' biases.
  void project(Context& context, const Saved& saved, Tensor y) const;
  /// Sets dx. Leaves `up` and `outputs` to context.weight_gradients, which may overwrite them.
  void backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;

 private:
  ExpertSlots layout(const Context& context) const;
  bool exchanges() const { return ranks_->size() > 1; }
  bool dropless() const { return sizes_.buffer > 0; }
  /// Parts of an expert's places that tensor ranks send: theirs where there are expert ranks, else the whole.
  std::int64_t tensor_parts(const Context& context) const { return exchanges() ? context.region.size() : 1; }
  std::int64_t parts(const Context& context) const;  ///< the same, of context ranks too
  /// Slots that this rank sends and adds up: all, or its part.
  std::int64_t own_slots(const Router::Saved& routes, const Context& context) const;
  std::int64_t first_slot(const Router::Saved& routes, const Context& context) const;
  ConstTensor own_entries(const Router::Saved& routes, const Context& context) const;
  /// The whole samples of x [s(/t), b, h]: x, or gathered into scratch.
  ConstTensor enter(Context& context, ConstTensor x) const;
  /// The same of rows [s, b, h] of all tensor ranks.
  ConstTensor whole_samples(Context& context, ConstTensor rows) const;
  /// Sets y [s(/t), b, h] to the sum of what all ranks' slots [own slots, h] add to its rows, by gates or as they are.
  void leave(Context& context, ConstTensor slots, ConstTensor gates, const Router::Saved& routes,
             const Holding<Hold::partial>& said, Tensor y) const;
  /// Sets dgates [s, b, k]; dy are whole samples.
  void gates_backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dgates) const;
  /// Tensors between the matrices of one expert, of its [rows, h].
  struct Inner {
    Tensor up, activated;

    Inner first(std::int64_t rows) const { return {up.slice(0, 0, rows), activated.slice(0, 0, rows)}; }
  };
  /// In context.saved, what is kept of all experts' here; `rows` are one's.
  void keep_inner(Context& context, std::int64_t rows, Saved& saved) const;
  /// In scratch, for one expert after the other: what is not kept, or all of it.
  Inner allocate_inner(Context& context, std::int64_t rows, bool all) const;
  /// The tensors of one expert here: those that are kept, else `shared`.
  Inner inner_of(const Saved& saved, const Inner& shared, std::int64_t index) const;
  /// Backward's: sets of an expert's what a forward has not kept.
  void complete(Context& context, std::int64_t index, ConstTensor input, const Inner& inner) const;

  // dropless.cpp: the same without drops, in rounds.
  void activate_rounds(Context& context, ConstTensor x, Saved& saved) const;
  void project_rounds(Context& context, const Saved& saved, Tensor y) const;
  void backward_rounds(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;
  /// Rows of [s, b, …] that this rank sends: all, or those of its part of the sequence where there are expert ranks.
  template <class AnyTensor>
  AnyTensor own_rows(const Context& context, AnyTensor whole) const;
  /// Where `tokens` of this rank lie, a part for each round that there can be.
  ExpertSlots rounds_layout(std::int64_t tokens) const;
  /// Sets the slots and entries of this rank's tokens, and the rounds that they take.
  void plan_rounds(Context& context, const ExpertSlots& layout, Saved& saved) const;
  /// This rank's rows of a round, by expert: sets `to`. `tokens` are the rows of all its tokens.
  void dispatch_round(Context& context, ConstTensor tokens, ConstTensor gates, const Saved& saved, std::int64_t round,
                      Tensor to) const;
  /// Takes the rows that came back, each to its choice: sets choices [tokens · k, h] after the last round.
  void collect_round(Context& context, ConstTensor returned, const Saved& saved, std::int64_t round,
                     Tensor choices) const;
  /// Buffers of the rounds after the first, in scratch: their inputs, absent where there can be none, and what one
  /// expert at a time makes of them, or of the first round's if that is not kept.
  struct LaterRounds {
    Tensor inputs;
    Inner inner;
  };
  LaterRounds allocate_later_rounds(Context& context, const Saved& saved) const;
  /// Sets the inputs of a round.
  void exchange_inputs(Context& context, const Saved& saved, std::int64_t round, Tensor inputs) const;
  /// Sets dgates, of all rows.
  void gates_back(Context& context, ConstTensor dy, const Saved& saved, Tensor dgates) const;

  MoeSizes sizes_;
  Communicator* ranks_;
  Router router_;
  Experts experts_;
};

}  // namespace megatron
