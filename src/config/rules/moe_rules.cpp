// Rules about the mixture of experts.
#include <set>

#include "config/rules/violations.h"

namespace megatron {
namespace {

/// Keys of [moe] that differ from their defaults, where there are no experts.
void check_without_experts(const Config& c, Violations& violations) {
  const MoeConfig& moe = c.model.moe;
  const MoeConfig standard;
  if (c.parallel.expert > 1) {
    violations.add({"parallel.expert", "moe.experts"},
                   "parallel.expert = {} divides experts among ranks, but moe.experts is not set", c.parallel.expert);
  }
  if (moe == standard) return;
  violations.add({"moe.experts"}, "[moe] has keys, but moe.experts is not set; give the number of experts per layer");
}

void check_layers(const Config& c, Violations& violations) {
  const MoeConfig& moe = c.model.moe;
  const std::int64_t most = std::max(c.model.layers, c.model.all_layers() - c.model.layers);
  std::set<std::int64_t> seen;
  for (const std::int64_t layer : moe.layers) {
    if (c.model.layers > 0 && layer >= most) {
      violations.add({"moe.layers", "model.layers"}, "moe.layers names layer {}, but the last one is {}", layer,
                     most - 1);
    }
    if (!seen.insert(layer).second) violations.add({"moe.layers"}, "moe.layers names layer {} twice", layer);
  }
  if (c.model.layers > 0 && moe.layers.empty() && c.model.expert_layers() == 0) {
    violations.add({"moe.every", "model.layers"},
                   "moe.every = {} leaves none of the model's {} layers with experts; give at most {}", moe.every,
                   c.model.layers, most);
  }
}

void check_dense_part(const MoeConfig& moe, Violations& violations) {
  if (moe.residual && moe.shared_experts > 0) {
    violations.add(
        {"moe.residual", "moe.shared_experts"},
        "moe.residual = true with moe.shared_experts = {}: both are a dense part that all tokens go through; "
        "leave one of them out",
        moe.shared_experts);
  }
  if (moe.shared_ffn() > std::int64_t{1} << 24) {
    violations.add({"moe.shared_experts", "moe.ffn_hidden_size"},
                   "moe.shared_experts × moe.ffn_hidden_size = {} × {} is more than 2^24 channels", moe.shared_experts,
                   moe.ffn_hidden_size);
  }
  if (moe.shared_gate && moe.shared_experts == 0) {
    violations.add({"moe.shared_gate", "moe.shared_experts"},
                   "moe.shared_gate = true needs moe.shared_experts, whose output it weights; give both, or leave "
                   "moe.shared_gate out");
  }
}

}  // namespace

void check_moe(const Config& c, Violations& violations) {
  const MoeConfig& moe = c.model.moe;
  if (moe.experts == 0) return check_without_experts(c, violations);
  if (moe.top_k > moe.experts) {
    violations.add({"moe.top_k", "moe.experts"}, "moe.top_k = {} is above moe.experts = {}", moe.top_k, moe.experts);
  }
  if (moe.top_k == 1 && moe.renormalize) {
    violations.add({"moe.renormalize", "moe.top_k"},
                   "moe.top_k = 1 with moe.renormalize = true: the only weight of a token is 1, whatever the router "
                   "says, so that the loss does not train it; give moe.renormalize = false");
  }
  if (c.task.has_head() && moe.drops() != ExpertDrop::none && moe.evaluation_capacity_factor != 0 &&
      moe.evaluation_capacity_factor != moe.capacity_factor) {
    violations.add({"moe.evaluation_capacity_factor", "task.name"},
                   "moe.evaluation_capacity_factor has no effect with task.name = \"{}\": where texts are told apart, "
                   "every expert has room for all tokens; leave it out",
                   c.task.name);
  }
  if (moe.experts % c.parallel.expert != 0) {
    violations.add({"parallel.expert", "moe.experts"},
                   "moe.experts = {} is not divisible by parallel.expert = {}; possible: {}", moe.experts,
                   c.parallel.expert, divisors(moe.experts, c.parallel.expert));
  }
  if (moe.ffn_hidden_size % c.parallel.tensor != 0) {
    violations.add({"moe.ffn_hidden_size", "parallel.tensor"},
                   "moe.ffn_hidden_size = {} is not divisible by parallel.tensor = {}; possible: {}",
                   moe.ffn_hidden_size, c.parallel.tensor, divisors(moe.ffn_hidden_size, c.parallel.tensor));
  }
  if (c.parallel.expert > 1 && c.parallel.tensor > 1 && !c.parallel.sequence_parallel) {
    violations.add({"parallel.sequence_parallel", "parallel.expert", "parallel.tensor"},
                   "parallel.expert = {} and parallel.tensor = {}: give parallel.sequence_parallel = true, as tensor "
                   "ranks then hold other tokens each",
                   c.parallel.expert, c.parallel.tensor);
  }
  check_layers(c, violations);
  check_dense_part(moe, violations);
  if (moe.drops() == ExpertDrop::none && moe.evaluation_capacity_factor != 0 &&
      moe.evaluation_capacity_factor != moe.capacity_factor) {
    violations.add(
        {"moe.evaluation_capacity_factor", "moe.drop"},
        "moe.evaluation_capacity_factor has no effect with moe.drop = \"none\": every expert takes all tokens "
        "that chose it; leave it out");
  }
}

}  // namespace megatron
