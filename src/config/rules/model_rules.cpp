// Rules about the model's sizes and how tensor, context and pipeline ranks divide it.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "config/rules/violations.h"

namespace megatron {
namespace {

void check_sizes(const Config& c, Violations& violations) {
  const ModelConfig& m = c.model;
  const std::pair<const char*, std::int64_t> needed[] = {{"model.layers", m.layers},
                                                         {"model.hidden_size", m.hidden_size},
                                                         {"model.attention_heads", m.attention_heads},
                                                         {"model.sequence_length", m.sequence_length}};
  for (const auto& [key, value] : needed) {
    if (value <= 0) violations.add({key}, "{} is not set; give it, or a model.preset", key);
  }
  if (c.train.global_batch_size <= 0) {
    violations.add({"train.global_batch_size"},
                   "train.global_batch_size is not set; it is the samples of one update over all ranks, a multiple of "
                   "micro_batch_size × data");
  }
  if (c.data.train.empty()) {
    violations.add({"data.train"}, "data.train is not set; it is what megatron_preprocess --output made");
  }
}

constexpr std::int64_t kMostChannels = 1 << 24;  // as of a hidden state, so that no product passes 2^63

void check_heads(const Config& c, Violations& violations) {
  const ModelConfig& m = c.model;
  if (m.hidden_size <= 0 || m.attention_heads <= 0) return;
  if (m.given_head_size == 0 && m.hidden_size % m.attention_heads != 0) {
    violations.add({"model.attention_heads", "model.hidden_size"},
                   "model.hidden_size = {} is not divisible by model.attention_heads = {}; possible heads: {}",
                   m.hidden_size, m.attention_heads, divisors(m.hidden_size, m.attention_heads));
    violations.add_other_way_out("or give model.head_size");
  }
  if (m.attention_heads * m.head_size() > kMostChannels) {
    violations.add({"model.head_size", "model.attention_heads"},
                   "model.attention_heads × model.head_size = {} × {} is more than 2^24 channels", m.attention_heads,
                   m.head_size());
  }
  const std::int64_t groups = query_groups_of(m), tensor = c.parallel.tensor;
  if (m.attention_heads % groups != 0) {
    violations.add({"model.query_groups", "model.attention_heads"},
                   "model.attention_heads = {} is not divisible by model.query_groups = {}; possible: {}",
                   m.attention_heads, groups, divisors(m.attention_heads, groups));
  } else if (m.attention_heads % tensor == 0 && groups % tensor != 0 && tensor % groups != 0) {
    violations.add(
        {"model.query_groups", "parallel.tensor", "model.attention_heads"},
        "model.query_groups = {} and parallel.tensor = {}: neither divides the other, so that groups can be neither "
        "split nor replicated evenly",
        groups, tensor);
  }
}

void check_tensor_divisions(const Config& c, Violations& violations) {
  const ModelConfig& m = c.model;
  const std::int64_t tensor = c.parallel.tensor;
  const auto divided = [&](const char* key, std::int64_t value) {
    if (value > 0 && value % tensor != 0) {
      violations.add({key, "parallel.tensor"}, "{} = {} is not divisible by parallel.tensor = {}; possible: {}", key,
                     value, tensor, divisors(value, tensor));
    }
  };
  divided("model.attention_heads", m.attention_heads);
  divided("model.ffn_hidden_size", ffn_hidden_size_of(m));
  if (m.vocab_size > 0 && m.padded_vocab() % tensor != 0) {
    violations.add({"model.vocab_multiple", "parallel.tensor", "model.vocab_size"},
                   "vocabulary {} padded to a multiple of model.vocab_multiple = {} is {}, which is not divisible by "
                   "parallel.tensor = {}",
                   m.vocab_size, m.vocab_multiple, m.padded_vocab(), tensor);
    violations.add_other_way_out("use a vocab_multiple like {}", multiples_around(m.vocab_multiple, tensor));
  }
  if (c.parallel.sequence_parallel && m.sequence_length % tensor != 0) {
    violations.add(
        {"parallel.sequence_parallel", "model.sequence_length", "parallel.tensor"},
        "sequence_parallel: model.sequence_length = {} is not divisible by parallel.tensor = {}; possible: {}; or "
        "sequence_parallel = false",
        m.sequence_length, tensor, divisors(m.sequence_length, tensor));
  }
  const std::int64_t chunks = 2 * c.parallel.context;
  if (c.parallel.context > 1 && m.sequence_length % chunks != 0) {
    violations.add({"parallel.context", "model.sequence_length"},
                   "model.sequence_length = {} is not divisible by 2 × parallel.context = {}; nearest lengths: {}",
                   m.sequence_length, chunks, multiples_around(m.sequence_length, chunks));
  } else if (const std::int64_t parts = tensor * c.parallel.context;
             c.parallel.context > 1 && c.parallel.sequence_parallel && m.sequence_length % parts != 0) {
    violations.add({"parallel.sequence_parallel", "parallel.context", "model.sequence_length", "parallel.tensor"},
                   "sequence_parallel: the {} rows of a context rank, model.sequence_length = {} over "
                   "parallel.context = {}, are not divisible by parallel.tensor = {}; nearest lengths: {}",
                   m.sequence_length / c.parallel.context, m.sequence_length, c.parallel.context, tensor,
                   multiples_around(m.sequence_length, std::lcm(parts, chunks)));
  }
}

void check_rotation(const Config& c, Violations& violations) {
  const ModelConfig& m = c.model;
  if (m.positions() != PositionEmbedding::rotary) return;
  const RotaryScalingConfig& scaling = m.rotary_scaling;
  if (!scaling.type.empty() && scaling.factor < 1) {
    violations.add({"model.rotary_scaling"},
                   "model.rotary_scaling: factor = {} is below 1; it says how many times longer sequences may be",
                   scaling.factor);
  }
  if (scaling.type == "llama3" && scaling.low_frequency_factor >= scaling.high_frequency_factor) {
    violations.add({"model.rotary_scaling"},
                   "model.rotary_scaling: low_frequency_factor = {} is not below high_frequency_factor = {}",
                   scaling.low_frequency_factor, scaling.high_frequency_factor);
  }
  if (m.hidden_size <= 0 || m.attention_heads <= 0) return;
  if (m.given_head_size == 0 && m.hidden_size % m.attention_heads != 0) return;
  const std::int64_t rotated = m.rotary_size();
  if (rotated < 2 || rotated % 2 != 0) {
    const bool own = m.given_head_size > 0;
    violations.add(
        {"model.rotary_fraction", "model.position_embedding", own ? "model.head_size" : "model.attention_heads",
         own ? "model.head_size" : "model.hidden_size"},
        "position_embedding = \"rope\" rotates pairs of channels, but model.rotary_fraction = {} of the head "
        "size {} is {}; it must be an even number of channels, at least 2",
        m.rotary_fraction,
        own ? fmt::to_string(m.head_size())
            : fmt::format("{} / {} = {}", m.hidden_size, m.attention_heads, m.head_size()),
        rotated);
  }
}

void check_positions(const Config& c, Violations& violations) {
  const ModelConfig& m = c.model;
  if (m.positions() == PositionEmbedding::learned && m.max_position_embeddings > 0 &&
      m.max_position_embeddings < m.sequence_length) {
    violations.add(
        {"model.max_position_embeddings", "model.sequence_length"},
        "model.max_position_embeddings = {}{} is smaller than model.sequence_length = {}", m.max_position_embeddings,
        m.preset.empty() ? "" : fmt::format(" (preset \"{}\" gives a default)", m.preset), m.sequence_length);
  }
}

/// Keys that give the number of all layers.
const char* layer_keys(const ModelConfig& model) {
  return model.has_decoder() ? "model.layers + model.decoder_layers" : "model.layers";
}

/// A cut of the layers as even as possible, the first and last stages (embedding, head) with the smaller share.
std::string example_stages(const Config& c) {
  const std::int64_t stages = c.parallel.pipeline, layers = c.model.all_layers();
  if (stages > 64) return "[...]";
  std::vector<std::int64_t> shares(static_cast<std::size_t>(stages), layers / stages);
  const std::int64_t rest = layers % stages, first = (stages - rest) / 2;
  for (std::int64_t i = 0; i < rest; ++i) ++shares[static_cast<std::size_t>(first + i)];
  return fmt::format("[{}]", fmt::join(shares, ", "));
}

void check_uneven_stages(const Config& c, Violations& violations) {
  const ParallelConfig& p = c.parallel;
  const auto stages = static_cast<std::int64_t>(p.layers_per_stage.size());
  const std::int64_t sum = std::accumulate(p.layers_per_stage.begin(), p.layers_per_stage.end(), std::int64_t{0});
  if (p.virtual_stages > 1 && stages != p.pipeline * p.virtual_stages) {
    violations.add({"parallel.layers_per_stage", "parallel.virtual_stages", "parallel.pipeline"},
                   "parallel.layers_per_stage has {} numbers, parallel.pipeline × parallel.virtual_stages = {} × {}; "
                   "give one number a chunk in the order of the model: chunk 0 of every stage, then chunk 1 of every "
                   "stage, ...",
                   stages, p.pipeline, p.virtual_stages);
  } else if (p.virtual_stages == 1 && stages != p.pipeline) {
    violations.add({"parallel.layers_per_stage", "parallel.pipeline"},
                   "parallel.layers_per_stage has {} numbers, parallel.pipeline = {}; give one number a stage", stages,
                   p.pipeline);
  }
  const std::int64_t layers = c.model.all_layers();
  if (c.model.layers > 0 && sum != layers) {
    violations.add({"parallel.layers_per_stage", "model.layers"},
                   "parallel.layers_per_stage sums to {} = {}, {} = {}; {} too {}",
                   fmt::join(p.layers_per_stage, " + "), sum, layer_keys(c.model), layers, std::abs(sum - layers),
                   sum < layers ? "few" : "many");
  }
}

void check_stages(const Config& c, Violations& violations) {
  const ParallelConfig& p = c.parallel;
  const std::int64_t layers = c.model.all_layers(), chunks = p.pipeline * p.virtual_stages;
  const ScheduleFacts& schedule = row_named(kSchedules, p.schedule);
  if (schedule.chunks && p.virtual_stages == 1) {
    violations.add({"parallel.virtual_stages", "parallel.schedule"},
                   "schedule = \"{}\" needs parallel.virtual_stages of at least 2", p.schedule);
  }
  if (!schedule.chunks && p.virtual_stages > 1) {
    violations.add({"parallel.virtual_stages", "parallel.schedule"},
                   "parallel.virtual_stages = {} needs schedule = \"{}\", not \"{}\"", p.virtual_stages,
                   schedule_with_chunks(), p.schedule);
  }
  if (p.virtual_stages > 1 && p.pipeline == 1) {
    violations.add({"parallel.virtual_stages", "parallel.pipeline"},
                   "parallel.virtual_stages = {} needs parallel.pipeline of at least 2", p.virtual_stages);
  }
  if (schedule.splits_backward && p.pipeline == 1) {
    violations.add({"parallel.schedule", "parallel.pipeline"},
                   "schedule = \"{}\" needs parallel.pipeline of at least 2: without stages there is no bubble, "
                   "and \"1f1b\" takes less memory",
                   p.schedule);
  }
  if (!p.layers_per_stage.empty()) return check_uneven_stages(c, violations);
  if (layers <= 0 || layers % chunks == 0) return;
  if (p.virtual_stages == 1) {
    violations.add({"parallel.pipeline", "model.layers"},
                   "{} = {} is not divisible by parallel.pipeline = {}; possible: {}", layer_keys(c.model), layers,
                   p.pipeline, divisors(layers, p.pipeline));
    if (p.pipeline < layers) {  // else a stage would have none
      violations.add_other_way_out("or give parallel.layers_per_stage, such as {}", example_stages(c));
    }
  } else {
    violations.add({"parallel.virtual_stages", "parallel.pipeline", "model.layers"},
                   "{} = {} is not divisible by parallel.pipeline × parallel.virtual_stages = {} × {} = {}; possible "
                   "products: {}",
                   layer_keys(c.model), layers, p.pipeline, p.virtual_stages, chunks, divisors(layers, chunks));
    violations.add_other_way_out("or give parallel.layers_per_stage, one number a chunk in the order of the model");
  }
}

void check_recompute(const Config& c, Violations& violations) {
  const RecomputeConfig& r = c.recompute;
  const auto& uneven = c.parallel.layers_per_stage;
  const std::int64_t most = uneven.empty() ? c.model.all_layers() / (c.parallel.pipeline * c.parallel.virtual_stages)
                                           : *std::max_element(uneven.begin(), uneven.end());
  if (most < 1) return;  // said elsewhere
  if (row_named(kSchedules, c.parallel.schedule).splits_backward && r.of_chunk(most) == most) {
    violations.add(
        {"recompute.mode", "parallel.schedule"},
        "schedule = \"{}\" fills the bubble with deferred weight gradients, and a recomputed layer gives back what "
        "they need: with every layer recomputed nothing is left to defer; take {}schedule = \"1f1b\"",
        c.parallel.schedule, most > 1 ? fmt::format("recompute.layers below {}, or ", most) : "");
  }
}

}  // namespace

void check_model(const Config& config, Violations& violations) {
  check_sizes(config, violations);
  check_heads(config, violations);
  check_tensor_divisions(config, violations);
  check_exchange(config, violations);
  check_positions(config, violations);
  check_rotation(config, violations);
  check_stages(config, violations);
  check_recompute(config, violations);
}

}  // namespace megatron
