// Rules about encoder-decoders (model.family = "t5"), and about what they alone have.
#include <numeric>

#include "config/rules/exchange_rules.h"
#include "config/rules/violations.h"
#include "config/schema/layer_split.h"

namespace megatron {

namespace {

void check_relative(const ModelConfig& m, Violations& violations) {
  if (m.positions() != PositionEmbedding::relative) return;
  // An encoder has half of the buckets for each direction, and half of these for single distances.
  if (m.relative_buckets % 4 != 0) {
    violations.add({"model.relative_buckets"}, "model.relative_buckets = {} is not a multiple of 4; nearest: {}",
                   m.relative_buckets, multiples_around(m.relative_buckets, 4));
  }
  if (m.relative_max_distance <= m.relative_buckets / 2) {
    violations.add({"model.relative_max_distance", "model.relative_buckets"},
                   "model.relative_max_distance = {} is not above half of model.relative_buckets = {}: half of the "
                   "buckets are for single distances",
                   m.relative_max_distance, m.relative_buckets);
  }
}

void check_lengths(const Config& c, Violations& violations) {
  const ModelConfig& m = c.model;
  const std::int64_t length = decoder_sequence_length_of(m), tensor = c.parallel.tensor;
  if (m.sequence_length <= 0) return;
  if (length < kFewestDecoderRows) {
    violations.add({"model.decoder_sequence_length"},
                   "model.decoder_sequence_length = {} is too short for a sentinel and a token; take {} or more",
                   length, kFewestDecoderRows);
  }
  const std::int64_t unit = std::lcm(c.parallel.sequence_parallel ? tensor * c.parallel.context : 1, exchange_unit(c));
  if (c.parallel.context > 1 && length % unit != 0) {
    violations.add(
        {"parallel.context", "model.decoder_sequence_length", "parallel.sequence_parallel", "parallel.tensor",
         "parallel.context_exchange", "model.attention_dropout"},
        "parallel.context = {}: model.decoder_sequence_length = {} is not divisible by {}, into which context "
        "ranks, tensor ranks and, with dropout, context_exchange = \"{}\" cut sequences; nearest lengths: {}",
        c.parallel.context, length, unit, exchange_of(c).name, multiples_around(length, unit));
    if (exchange_unit(c) > 2 * c.parallel.context) {
      violations.add_other_way_out("or give context_exchange = \"{}\"", kAttentionExchanges.front().name);
    }
  } else if (c.parallel.sequence_parallel && length % tensor != 0) {
    violations.add({"parallel.sequence_parallel", "model.decoder_sequence_length", "parallel.tensor"},
                   "sequence_parallel: model.decoder_sequence_length = {} is not divisible by parallel.tensor = {}; "
                   "nearest: {}; or sequence_parallel = false",
                   length, tensor, multiples_around(length, tensor));
  }
  if (m.positions() == PositionEmbedding::learned && m.max_position_embeddings > 0 &&
      m.max_position_embeddings < length) {
    violations.add({"model.max_position_embeddings", "model.decoder_sequence_length"},
                   "model.max_position_embeddings = {} is smaller than model.decoder_sequence_length = {}",
                   m.max_position_embeddings, length);
  }
}

void check_split(const Config& c, Violations& violations) {
  const ParallelConfig& p = c.parallel;
  const std::int64_t all = c.model.all_layers(), chunks = p.pipeline * p.virtual_stages;
  const std::vector<std::int64_t>& given = p.layers_per_stage;
  const bool cut = given.empty() ? all % chunks == 0
                                 : static_cast<std::int64_t>(given.size()) == chunks &&
                                       std::accumulate(given.begin(), given.end(), std::int64_t{0}) == all;
  if (p.split_stage == 0 || c.model.layers <= 0 || !cut) return;  // a cut that fails is said elsewhere
  const int stage = stage_of_layer(c.model, p, c.model.layers);
  if (stage == p.split_stage) return;
  violations.add(
      {"parallel.split_stage", "model.layers", "parallel.layers_per_stage"},
      "parallel.split_stage = {}, but the first layer of the decoder is on stage {}: {} layers of the encoder "
      "and {} of the decoder are cut over {} stages; give parallel.layers_per_stage, or leave split_stage out",
      p.split_stage, stage, c.model.layers, all - c.model.layers, p.pipeline);
}

}  // namespace

void check_t5(const Config& c, Violations& violations) {
  const ModelConfig& m = c.model;
  check_relative(m, violations);
  if (!m.has_decoder()) return;
  check_lengths(c, violations);
  check_split(c, violations);
  if (m.scale_head && !m.tie_embeddings) {
    violations.add({"model.scale_head", "model.tie_embeddings"},
                   "model.scale_head = true is for a head that is the word table; take tie_embeddings = true, or leave "
                   "it out");
  }
}

}  // namespace megatron
