// Context: what a layer is given in addition to its tensors. Passed by reference through a forward or backward pass.
// Knows nothing of schedules; a layer asks for rows() and does not know which stream of which model it is on.
#pragma once

#include <span>

#include "backend/ops/ops.h"
#include "base/core/attention_exchanges.h"
#include "base/core/philox.h"
#include "distributed/parallel/context_region.h"
#include "distributed/parallel/gradient_ring.h"
#include "distributed/parallel/parameter_all_gather.h"
#include "distributed/parallel/tensor_region.h"
#include "models/batch/micro_batch.h"
#include "models/layers/key_value_cache.h"
#include "models/layers/weight_gradients.h"

namespace megatron {

class GradientReducer;

/// Where a model draws random numbers before its layers.
enum class ModelSite : std::uint64_t {
  embedding = 0,
  decoder_embedding = 6,  ///< in an encoder-decoder, whose two streams draw different masks
  pooled = 7,             ///< input of a task's head
  end
};
/// Where a layer does.
enum class LayerSite : std::uint64_t {
  attention = 1,
  attention_output = 2,
  mlp_output = 3,
  cross_attention = 4,
  cross_attention_output = 5,
  place_order = 6,   ///< choice of tokens that find a place in an expert
  router_input = 7,  ///< noise of what a router reads
  end
};
/// Numbers of sites that are set aside for each layer, and for what is before the first.
inline constexpr std::uint64_t kSiteStride = 8;
static_assert(static_cast<std::uint64_t>(ModelSite::end) <= kSiteStride);
static_assert(static_cast<std::uint64_t>(LayerSite::end) <= kSiteStride);

/// The number of a site in a model: no two have the same.
constexpr std::uint64_t random_site(ModelSite site) {
  return static_cast<std::uint64_t>(site);
}
constexpr std::uint64_t random_site(LayerSite site, std::int64_t layer) {
  return static_cast<std::uint64_t>(layer + 1) * kSiteStride + static_cast<std::uint64_t>(site);
}

/// Results that a forward pass may be asked for, the same on every tensor rank. It sets these; absent ones are not
/// computed. The first three belong to each target: f32 [s·b] in the order of the logits' rows. The scores are a task's
/// head's.
struct TargetResults {
  Tensor losses;        ///< -ln(probability of the target), without its weight
  Tensor maximum;       ///< the largest logit
  Tensor target_logit;  ///< equal to `maximum` where no token is likelier than the target
  Tensor scores = {};   ///< f32 [labels, classes]: the logits of each sample's classes
};

/// The part of the encoder that a decoder's layers see: its output, [s(/t), b, h] of the encoder's stream.
struct EncoderMemory {
  ConstTensor states;
  Tensor gradient;  ///< in a backward: layers add theirs
};

/// Tally of the routers of a step's forwards on this rank (TallyRoutesArgs).
struct RouteTally {
  Tensor choices;    ///< f64 [layers with experts, experts + 1]
  Tensor least_gap;  ///< f64 [1]
};

/// Settings of a pass over one step's micro-batches, the same for all of them.
struct PassSettings {
  bool training = true;  ///< false: no dropout
  std::uint64_t seed = 0, step = 0;
  DType activation_type = DType::f32;
  AttentionExchange exchange = AttentionExchange::gathered;  ///< by which context ranks see each other's rows
  /// If set: sums are started under each chunk's last backward; the caller finishes them.
  GradientReducer* gradient_reducer = nullptr;
  FirstSums* first_sums = nullptr;        ///< if set: says which products set a gradient instead of adding to it
  GradientRing* gradient_ring = nullptr;  ///< if set: makes room for a layer's gradients in each backward of it
  ParameterAllGather* gathers = nullptr;  ///< if set: values may still be on their way when a forward begins
  /// f64, by term of the model's loss: forwards add the sums over their micro-batches, the same on every tensor rank.
  Tensor loss_sums = {};
  /// By term: what a backward multiplies the gradient of that sum with (coefficient · loss scale / count). None where
  /// no backward follows the forwards.
  std::span<const double> gradient_scales = {};
  std::span<const TargetResults> results = {};  ///< by micro-batch, or none: asked of forwards that count losses
  bool experts_take_all = false;                ///< each has room for all tokens of a sample
  const RouteTally* routes = nullptr;           ///< set where the forwards of a training step count choices of experts
};

struct Context {
  Ops& ops;
  const TensorRegion& region;
  Arena* saved;    ///< lives until this micro-batch's backward; forward allocates here what backward reads. May alias
                   ///< `scratch` while recomputing: a block's layers allocate here outside of any scope of scratch
  Arena& scratch;  ///< temporaries: every function leaves it as it found it
  const MicroBatch& micro_batch;
  const PassSettings& pass;
  WeightGradients* weight_gradients = &immediate_weight_gradients();  ///< takes every product of a backward
  bool input_lasts = true;       ///< false in a backward: what the layer has read is given back when it returns
  bool counts = true;            ///< false in a backward: a layer that is recomputed there counts nothing twice
  Stream stream = Stream::main;  ///< that the layer at work is on
  const TargetResults* results = nullptr;         ///< set where a forward that counts losses is asked for more
  const CachePass* cache = nullptr;               ///< if set: attention also sees the tokens of earlier passes
  EncoderMemory memory = {};                      ///< for an encoder-decoder's decoder layers
  const ContextRegion* context_region = nullptr;  ///< if set: where rows that other context ranks have come from

  /// f64 [1] of one term; absent where losses are.
  Tensor loss_sum(int term) const { return counts && pass.loss_sums ? pass.loss_sums.slice(0, term, 1) : Tensor(); }
  double gradient_scale(int term) const { return pass.gradient_scales[static_cast<std::size_t>(term)]; }
  bool has_backward() const { return !pass.gradient_scales.empty(); }  ///< whether one follows this forward
  const RouteTally* routes() const { return counts ? pass.routes : nullptr; }

  /// Rows of the stream that the layer at work is on.
  const Rows& rows() const { return micro_batch.rows(stream); }

  /// Whether other context ranks have rows of the same samples.
  bool divided() const { return context_region != nullptr && context_region->divided(); }
  int context_ranks() const { return divided() ? context_region->cut().ranks : 1; }
  int context_rank() const { return divided() ? context_region->cut().rank : 0; }
  /// Rows of whole sequences of this stream, of all context ranks.
  std::int64_t whole_sequence() const { return rows().sequence * context_ranks(); }

  /// Before a forward reads the values of parameters up to this one, in the order of declaration.
  void wait_for(const Parameter& last) const {
    if (pass.gathers != nullptr) pass.gathers->wait_for(last.index);
  }

  /// Before a backward of the layer whose first parameter this is reads its values and adds to its gradients.
  void backward_begins(const Parameter& first) const {
    if (pass.gathers != nullptr) pass.gathers->wait_for_backward(first.index);
    if (pass.gradient_ring == nullptr) return;
    internal_check(!weight_gradients->deferred(), "a layer's divided gradients are made in one backward");
    pass.gradient_ring->begin(first.index, ops);
  }
  /// A backward adds nothing more to the gradients of this parameter and of those declared after it, but the products
  /// that it has handed to weight_gradients so far.
  void gradients_ready(const Parameter& from) const {
    if (pass.gradient_ring != nullptr) pass.gradient_ring->end(from.index);
    weight_gradients->complete_from(*this, from.index);
  }
  /// Between long operations: moves along all that this rank has in flight, of whatever group: sums of the tensor
  /// ranks and of gradients, values on their way, what goes to neighbours in the pipeline.
  void progress() const { region.communicator().progress(); }

  /// The same, but what backward reads goes to `arena`.
  Context saving_in(Arena& arena) const {
    Context context = *this;
    context.saved = &arena;
    return context;
  }
  /// And with another policy for its weight gradients.
  Context saving_in(Arena& arena, WeightGradients& policy) const {
    Context context = saving_in(arena);
    context.weight_gradients = &policy;
    return context;
  }

  /// For products that read what a backward gives back: they run at once.
  Context at_once() const { return saving_in(*saved, immediate_weight_gradients()); }
  /// For products that read the input of the layer at work.
  Context reading_input() const { return input_lasts ? *this : at_once(); }

  /// The same for layers on another stream.
  Context on(Stream other) const {
    Context context = *this;
    context.stream = other;
    return context;
  }

  /// The mask of one site (random_site) over [s, b, h] outside a tensor region.
  Dropout hidden_dropout(double probability, std::uint64_t site) const {
    Dropout dropout = dropout_at(probability, site);
    if (dropout.probability > 0) {
      const std::int64_t s = rows().sequence;
      dropout.positions = rows().positions.slice(0, region.local_sequence_offset(s), region.local_sequence_length(s));
    }
    return dropout;
  }

  /// The order in which a layer's experts take the tokens of a whole sample: by chance in training, else by position.
  PlaceOrder place_order(std::int64_t layer) const {
    if (!pass.training) return {};
    return {.random = true,
            .key = random_key(pass.seed, pass.step, random_site(LayerSite::place_order, layer)),
            .positions = divided() ? rows().whole_positions : rows().positions,
            .first_sample = micro_batch.first_sample};
  }

  /// The noise of what a layer's router reads, in training: of `count` rows of the sequence from `first_row` on.
  Jitter router_jitter(double amount, std::int64_t layer, std::int64_t first_row, std::int64_t count) const {
    if (!pass.training || amount == 0) return {};
    return {.amount = static_cast<float>(amount),
            .key = random_key(pass.seed, pass.step, random_site(LayerSite::router_input, layer)),
            .positions = rows().positions.slice(0, first_row, count),
            .first_sample = micro_batch.first_sample};
  }

  /// The mask over one row of each sample, [1, b, h], that is the same on every tensor rank.
  Dropout pooled_dropout(double probability) const {
    Dropout dropout = dropout_at(probability, random_site(ModelSite::pooled));
    if (dropout.probability > 0) dropout.positions = rows().positions.slice(0, 0, 1);
    return dropout;
  }

  /// The mask over attention probabilities; `first_head` is the global index of local head 0.
  Dropout attention_dropout(double probability, std::int64_t layer, std::int64_t first_head,
                            LayerSite site = LayerSite::attention) const {
    Dropout dropout = dropout_at(probability, random_site(site, layer));
    dropout.positions = rows().positions;
    dropout.first_head = first_head;
    return dropout;
  }

 private:
  Dropout dropout_at(double probability, std::uint64_t site) const {
    Dropout dropout;
    if (!pass.training) return dropout;
    dropout.probability = static_cast<float>(probability);
    dropout.key = random_key(pass.seed, pass.step, site);
    dropout.first_sample = micro_batch.first_sample;
    return dropout;
  }
};

}  // namespace megatron
