#include "config/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "config/batch_schedule.h"

namespace megatron {
namespace {

/// "1, 2, 3, 4, 6, 12": the divisors of n; of many, the ones around `near`.
std::string divisors(std::int64_t n, std::int64_t near) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d <= n / d; ++d) {
    if (n % d != 0) continue;
    all.push_back(d);
    if (d != n / d) all.push_back(n / d);
  }
  std::sort(all.begin(), all.end());
  constexpr std::size_t kShown = 12;
  if (all.size() <= kShown) return fmt::format("{}", fmt::join(all, ", "));
  const auto at = static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), near) - all.begin());
  const std::size_t first = std::min(at < kShown / 2 ? 0 : at - kShown / 2, all.size() - kShown);
  const std::vector<std::int64_t> shown(all.begin() + static_cast<std::ptrdiff_t>(first),
                                        all.begin() + static_cast<std::ptrdiff_t>(first + kShown));
  return fmt::format("{}{}{}", first > 0 ? "..., " : "", fmt::join(shown, ", "),
                     first + kShown < all.size() ? ", ..." : "");
}

/// "48, 56": the multiples of m around n, without 0.
std::string multiples_around(std::int64_t n, std::int64_t m) {
  const std::int64_t below = n / m * m;
  return below > 0 ? fmt::format("{}, {}", below, below + m) : fmt::format("{}", m);
}

class Rules {
 public:
  explicit Rules(const Config& config) : c_(config) {}

  std::vector<Violation> take() { return std::move(violations_); }

  void sizes() {
    const ModelConfig& m = c_.model;
    const std::pair<const char*, std::int64_t> needed[] = {{"model.layers", m.layers},
                                                           {"model.hidden_size", m.hidden_size},
                                                           {"model.attention_heads", m.attention_heads},
                                                           {"model.sequence_length", m.sequence_length}};
    for (const auto& [key, value] : needed) {
      if (value <= 0) add({key}, "{} is not set; give it, or a model.preset", key);
    }
    if (c_.train.global_batch_size <= 0) {
      add({"train.global_batch_size"},
          "train.global_batch_size is not set; it is the samples of one update over all ranks, a multiple of "
          "micro_batch_size × data");
    }
    if (c_.data.train.empty() && c_.data.train_blend.empty()) {
      add({"data.train"}, "data.train is not set; it is what megatron_preprocess --output made");
    }
    sizes_known_ = violations_.empty();
    heads_known_ = m.hidden_size > 0 && m.attention_heads > 0;
  }

  void heads() {
    const ModelConfig& m = c_.model;
    if (!heads_known_) return;
    if (m.hidden_size % m.attention_heads != 0) {
      add({"model.attention_heads", "model.hidden_size"},
          "model.hidden_size = {} is not divisible by model.attention_heads = {}; possible heads: {}", m.hidden_size,
          m.attention_heads, divisors(m.hidden_size, m.attention_heads));
    } else if (m.position_embedding == "rope" && m.head_size() % 2 != 0) {
      add({"model.position_embedding", "model.attention_heads", "model.hidden_size"},
          "position_embedding = \"rope\" rotates pairs, but the head size {} / {} = {} is odd", m.hidden_size,
          m.attention_heads, m.head_size());
    }
    const std::int64_t groups = query_groups_of(m), tensor = c_.parallel.tensor;
    if (m.attention_heads % groups != 0) {
      add({"model.query_groups", "model.attention_heads"},
          "model.attention_heads = {} is not divisible by model.query_groups = {}; possible: {}", m.attention_heads,
          groups, divisors(m.attention_heads, groups));
    } else if (m.attention_heads % tensor == 0 && groups % tensor != 0 && tensor % groups != 0) {
      add({"model.query_groups", "parallel.tensor", "model.attention_heads"},
          "model.query_groups = {} and parallel.tensor = {}: neither divides the other, so that groups can be neither "
          "split nor replicated evenly",
          groups, tensor);
    }
  }

  void tensor_divisions() {
    const ModelConfig& m = c_.model;
    const std::int64_t tensor = c_.parallel.tensor;
    const auto divided = [&](const char* key, std::int64_t value) {
      if (value > 0 && value % tensor != 0) {
        add({key, "parallel.tensor"}, "{} = {} is not divisible by parallel.tensor = {}; possible: {}", key, value,
            tensor, divisors(value, tensor));
      }
    };
    divided("model.attention_heads", m.attention_heads);
    if (m.ffn_hidden_size > 0 || m.hidden_size % std::max<std::int64_t>(tensor, 1) != 0) {
      divided("model.ffn_hidden_size", ffn_hidden_size_of(m));
    }
    if (m.vocab_size > 0 && m.padded_vocab() % tensor != 0) {
      add({"model.vocab_multiple", "parallel.tensor", "model.vocab_size"},
          "vocabulary {} padded to a multiple of model.vocab_multiple = {} is {}, which is not divisible by "
          "parallel.tensor = {}; use a vocab_multiple like {}",
          m.vocab_size, m.vocab_multiple, m.padded_vocab(), tensor, multiples_around(m.vocab_multiple, tensor));
    }
    if (c_.parallel.sequence_parallel && m.sequence_length % tensor != 0) {
      add({"parallel.sequence_parallel", "model.sequence_length", "parallel.tensor"},
          "sequence_parallel: model.sequence_length = {} is not divisible by parallel.tensor = {}; possible: {}",
          m.sequence_length, tensor, divisors(m.sequence_length, tensor));
    }
    const std::int64_t chunks = 2 * c_.parallel.context;
    if (c_.parallel.context > 1 && m.sequence_length % chunks != 0) {
      add({"parallel.context", "model.sequence_length"},
          "model.sequence_length = {} is not divisible by 2 × parallel.context = {}; nearest lengths: {}",
          m.sequence_length, chunks, multiples_around(m.sequence_length, chunks));
    }
  }

  void positions() {
    const ModelConfig& m = c_.model;
    if (m.position_embedding == "learned" && m.max_position_embeddings > 0 &&
        m.max_position_embeddings < m.sequence_length) {
      add({"model.max_position_embeddings", "model.sequence_length"},
          "model.max_position_embeddings = {}{} is smaller than model.sequence_length = {}", m.max_position_embeddings,
          m.preset.empty() ? "" : fmt::format(" (preset \"{}\" gives a default)", m.preset), m.sequence_length);
    }
  }

  void stages() {
    const ParallelConfig& p = c_.parallel;
    const std::int64_t layers = c_.model.layers, pieces = p.pipeline * p.virtual_stages;
    const bool interleaved = p.schedule == "interleaved";
    if (interleaved && p.virtual_stages == 1) {
      add({"parallel.virtual_stages", "parallel.schedule"},
          "schedule = \"interleaved\" needs parallel.virtual_stages of at least 2");
    }
    if (!interleaved && p.virtual_stages > 1) {
      add({"parallel.virtual_stages", "parallel.schedule"},
          "parallel.virtual_stages = {} needs schedule = \"interleaved\", not \"{}\"", p.virtual_stages, p.schedule);
    }
    if (p.virtual_stages > 1 && p.pipeline == 1) {
      add({"parallel.virtual_stages", "parallel.pipeline"},
          "parallel.virtual_stages = {} needs parallel.pipeline of at least 2", p.virtual_stages);
    }
    if (!p.layers_per_stage.empty()) return uneven_stages();
    if (layers <= 0 || layers % pieces == 0) return;
    if (p.virtual_stages == 1) {
      add({"parallel.pipeline", "model.layers"},
          "model.layers = {} is not divisible by parallel.pipeline = {}; possible: {}; or give "
          "parallel.layers_per_stage, such as {}",
          layers, p.pipeline, divisors(layers, p.pipeline), example_stages());
    } else {
      add({"parallel.virtual_stages", "parallel.pipeline", "model.layers"},
          "model.layers = {} is not divisible by parallel.pipeline × parallel.virtual_stages = {} × {} = {}; possible "
          "products: {}",
          layers, p.pipeline, p.virtual_stages, pieces, divisors(layers, pieces));
    }
  }

  void recompute() {
    const RecomputeConfig& r = c_.recompute;
    if (r.mode != "full" && r.layers != 1) {
      add({"recompute.layers", "recompute.mode"},
          "recompute.layers = {} has a meaning with mode = \"full\" only, not \"{}\"", r.layers, r.mode);
    }
    if (r.mode != "full" || c_.model.layers <= 0) return;
    const auto& uneven = c_.parallel.layers_per_stage;
    const std::int64_t most = uneven.empty() ? c_.model.layers / (c_.parallel.pipeline * c_.parallel.virtual_stages)
                                             : *std::max_element(uneven.begin(), uneven.end());
    if (most > 0 && r.layers > most) {
      add({"recompute.layers", "parallel.pipeline", "model.layers"},
          "recompute.layers = {} is more than the {} layers a stage holds", r.layers, most);
    }
  }

  void duration() {
    const TrainConfig& t = c_.train;
    std::vector<std::string> given;
    if (t.steps > 0) given.push_back(fmt::format("steps = {}", t.steps));
    if (t.samples > 0) given.push_back(fmt::format("samples = {}", t.samples));
    if (t.tokens > 0) given.push_back(fmt::format("tokens = {}", t.tokens));
    if (t.epochs > 0) given.push_back(fmt::format("epochs = {}", t.epochs));
    if (given.size() == 1) return;
    add({"train.steps", "train.samples", "train.tokens", "train.epochs"},
        "exactly one of train.steps, samples, tokens, epochs says how long to train; {}",
        given.empty() ? "none is given" : fmt::format("given are {}", fmt::join(given, ", ")));
  }

  void ramp_up() {
    const BatchRampUp& ramp = c_.train.batch_ramp_up;
    const std::int64_t whole = c_.train.global_batch_size;
    if (ramp.start == 0 || whole <= 0) return;
    if (ramp.start >= whole) {
      add({"train.batch_ramp_up", "train.global_batch_size"},
          "train.batch_ramp_up.start = {} is not smaller than train.global_batch_size = {}", ramp.start, whole);
    } else if ((whole - ramp.start) % ramp.increment != 0) {
      add({"train.batch_ramp_up", "train.global_batch_size"},
          "train.batch_ramp_up: global_batch_size - start = {} - {} = {} is not divisible by increment = {}; possible: "
          "{}",
          whole, ramp.start, whole - ramp.start, ramp.increment, divisors(whole - ramp.start, ramp.increment));
    }
  }

  void learning_rate() {
    const LearningRateConfig& l = c_.learning_rate;
    if (l.minimum > l.peak) {
      add({"learning_rate.minimum", "learning_rate.peak"},
          "learning_rate.minimum = {} is above learning_rate.peak = {}", l.minimum, l.peak);
    }
    if ((l.warmup_steps > 0) + (l.warmup_samples > 0) + (l.warmup_fraction > 0) > 1) {
      add({"learning_rate.warmup_steps", "learning_rate.warmup_samples", "learning_rate.warmup_fraction"},
          "at most one of learning_rate.warmup_steps, warmup_samples, warmup_fraction says the warm-up");
    }
    if (l.decay_steps > 0 && l.decay_samples > 0) {
      add({"learning_rate.decay_steps", "learning_rate.decay_samples"},
          "at most one of learning_rate.decay_steps, decay_samples says the decay length");
    }
  }

  void data_and_start() {
    if (!c_.checkpoint.load.empty() && !c_.checkpoint.initialize_from.empty()) {
      add({"checkpoint.load", "checkpoint.initialize_from"},
          "checkpoint.load (weights and optimizer) and checkpoint.initialize_from (weights only) exclude each other");
    }
    if (!split_is_good()) {
      add({"data.split"},
          "data.split = \"{}\" is not up to three numbers of at least 0 with commas between, the first above 0, like "
          "\"969,30,1\"",
          c_.data.split);
    }
  }

  void grid(int ranks) {
    const ParallelConfig& p = c_.parallel;
    const std::int64_t replica = p.tensor * p.context * p.pipeline;
    const std::string arithmetic =
        fmt::format("tensor {} × {}pipeline {}", p.tensor, p.context > 1 ? fmt::format("context {} × ", p.context) : "",
                    p.pipeline);
    if (ranks % replica != 0) {
      const std::int64_t whole = ranks / replica * replica;
      add({"parallel.tensor", "parallel.context", "parallel.pipeline"},
          "{} ranks cannot hold whole replicas of {} = {} ranks; start it with {} ranks{}", ranks, arithmetic, replica,
          whole > 0 ? fmt::format("{} or {}", whole, whole + replica) : fmt::format("{}", replica),
          fmt::format(", or choose a product that divides {}: {}", ranks, divisors(ranks, replica)));
      return;
    }
    const std::int64_t data = ranks / replica;
    if (p.data > 0 && p.data != data) {
      add({"parallel.data"},
          "{} × data {} = {} ranks, but there are {}; start it with {} ranks, or leave parallel.data out", arithmetic,
          p.data, replica * p.data, ranks, replica * p.data);
      return;
    }
    if (data % p.expert != 0) {
      add({"parallel.expert"}, "the data size {} / ({}) = {} is not divisible by parallel.expert = {}; possible: {}",
          ranks, arithmetic, data, p.expert, divisors(data, p.expert));
    }
    batches(data);
  }

 private:
  template <class... Args>
  void add(std::vector<std::string> keys, fmt::format_string<Args...> format, Args&&... args) {
    violations_.push_back({std::move(keys), fmt::format(format, std::forward<Args>(args)...)});
  }

  void batches(std::int64_t data) {
    const TrainConfig& t = c_.train;
    const ParallelConfig& p = c_.parallel;
    if (t.global_batch_size <= 0) return;
    const std::int64_t together = t.micro_batch_size * data;
    if (t.global_batch_size % together != 0) {
      add({"train.global_batch_size", "train.micro_batch_size"},
          "train.global_batch_size = {} is not a multiple of micro_batch_size {} × data {} = {}; nearest: {}",
          t.global_batch_size, t.micro_batch_size, data, together, multiples_around(t.global_batch_size, together));
      return;
    }
    const BatchRampUp& ramp = t.batch_ramp_up;
    const bool good_ramp = ramp.start == 0 || (ramp.start < t.global_batch_size &&
                                               (t.global_batch_size - ramp.start) % ramp.increment == 0);
    if (!good_ramp) return;
    if (ramp.start > 0 && (ramp.start % together != 0 || ramp.increment % together != 0)) {
      add({"train.batch_ramp_up", "train.micro_batch_size"},
          "train.batch_ramp_up: start = {} and increment = {} are not both multiples of micro_batch_size {} × data {} "
          "= {}",
          ramp.start, ramp.increment, t.micro_batch_size, data, together);
    } else if (p.schedule == "interleaved") {
      const std::int64_t smallest = ramp.start > 0 ? std::gcd(ramp.start, ramp.increment) : t.global_batch_size;
      if (smallest / together % p.pipeline != 0) {
        add({"train.global_batch_size", "train.micro_batch_size", "parallel.pipeline"},
            "schedule = \"interleaved\" needs a multiple of pipeline = {} micro-batches a rank at every batch size; {} "
            "/ "
            "({} × {}) = {}",
            p.pipeline, smallest, t.micro_batch_size, data, smallest / together);
      }
    }
  }

  void uneven_stages() {
    const ParallelConfig& p = c_.parallel;
    const auto stages = static_cast<std::int64_t>(p.layers_per_stage.size());
    const std::int64_t sum = std::accumulate(p.layers_per_stage.begin(), p.layers_per_stage.end(), std::int64_t{0});
    if (p.virtual_stages > 1) {
      add({"parallel.layers_per_stage", "parallel.virtual_stages"},
          "parallel.layers_per_stage and parallel.virtual_stages = {} exclude each other", p.virtual_stages);
    } else if (stages != p.pipeline) {
      add({"parallel.layers_per_stage", "parallel.pipeline"},
          "parallel.layers_per_stage has {} numbers, parallel.pipeline = {}; give one number a stage", stages,
          p.pipeline);
    }
    if (c_.model.layers > 0 && sum != c_.model.layers) {
      add({"parallel.layers_per_stage", "model.layers"},
          "parallel.layers_per_stage sums to {} = {}, model.layers = {}; {} too {}",
          fmt::join(p.layers_per_stage, " + "), sum, c_.model.layers, std::abs(sum - c_.model.layers),
          sum < c_.model.layers ? "few" : "many");
    }
  }

  /// A cut of the layers as even as possible, the first and last stages (embedding, head) with the smaller share.
  std::string example_stages() const {
    const std::int64_t stages = c_.parallel.pipeline, layers = c_.model.layers;
    if (stages > 64) return "[...]";
    if (stages > layers) return fmt::format("at most {} stages", layers);
    std::vector<std::int64_t> shares(static_cast<std::size_t>(stages), layers / stages);
    const std::int64_t rest = layers % stages, first = (stages - rest) / 2;
    for (std::int64_t i = 0; i < rest; ++i) ++shares[static_cast<std::size_t>(first + i)];
    return fmt::format("[{}]", fmt::join(shares, ", "));
  }

  bool split_is_good() const {
    std::istringstream text(c_.data.split);
    std::string part;
    int count = 0;
    while (std::getline(text, part, ',')) {
      std::istringstream one(part);
      double share = -1;
      std::string rest;
      if (!(one >> share) || (one >> rest) || !std::isfinite(share) || share < 0) return false;
      if (++count == 1 && share == 0) return false;
    }
    return count >= 1 && count <= 3 && !c_.data.split.ends_with(',');
  }

  const Config& c_;
  std::vector<Violation> violations_;
  bool sizes_known_ = false, heads_known_ = false;
};

}  // namespace

std::int64_t ffn_hidden_size_of(const ModelConfig& model) {
  return model.ffn_hidden_size > 0 ? model.ffn_hidden_size : 4 * model.hidden_size;
}

std::int64_t query_groups_of(const ModelConfig& model) {
  return model.query_groups > 0 ? model.query_groups : model.attention_heads;
}

std::int64_t layers_of_stage(const Config& config, std::int64_t stage) {
  const auto& uneven = config.parallel.layers_per_stage;
  return uneven.empty() ? config.model.layers / config.parallel.pipeline : uneven.at(static_cast<std::size_t>(stage));
}

std::vector<Violation> check_alone(const Config& config) {
  Rules rules(config);
  rules.sizes();
  rules.heads();
  rules.tensor_divisions();
  rules.positions();
  rules.stages();
  rules.recompute();
  rules.duration();
  rules.ramp_up();
  rules.learning_rate();
  rules.data_and_start();
  return rules.take();
}

std::vector<Violation> check_with_ranks(const Config& config, int ranks) {
  Rules rules(config);
  rules.grid(ranks);
  return rules.take();
}

}  // namespace megatron
