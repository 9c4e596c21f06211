#include "train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "config/parse.h"
#include "config/resolve.h"
#include "ops/counting_ops.h"

namespace megatron {

namespace {

// Candidates, likeliest first, with their probabilities at the temperature.
struct Candidate {
  std::int32_t token;
  double probability;
};

std::vector<Candidate> candidates(std::span<const float> logits, double temperature) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  std::vector<Candidate> all;
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double probability = std::exp((double{logits[i]} - highest) / temperature);
    all.push_back({static_cast<std::int32_t>(i), probability});
    sum += probability;
  }
  for (Candidate& candidate : all) candidate.probability /= sum;
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.probability > b.probability; });
  return all;
}

std::size_t kept(const std::vector<Candidate>& sorted, const SamplingOptions& options) {
  std::size_t count = sorted.size();
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < count) {
    const double threshold = sorted[static_cast<std::size_t>(options.top_k) - 1].probability;
    for (count = static_cast<std::size_t>(options.top_k); count < sorted.size(); ++count) {
      if (sorted[count].probability < threshold) break;
    }
  }
  if (options.top_p > 0) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += sorted[i].probability;
      if (sum > options.top_p) return i + 1;
    }
  }
  return count;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  if (options.top_k == 1) {
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  const std::vector<Candidate> sorted = candidates(logits, options.temperature);
  const std::size_t count = kept(sorted, options);
  double total = 0;
  for (std::size_t i = 0; i < count; ++i) total += sorted[i].probability;
  double rest = uniform * total;
  for (std::size_t i = 0; i < count; ++i) {
    rest -= sorted[i].probability;
    if (rest < 0) return sorted[i].token;
  }
  return sorted[count - 1].token;
}

Generator::Generator(const std::string& path, Communicator& world, Compute compute) : compute_(std::move(compute)) {
  std::vector<std::string> warnings;
  const CheckpointReader checkpoint = open_named_checkpoint(world, path, warnings);
  for (const std::string& warning : warnings) fmt::print(stderr, "warning: {}\n", warning);
  path_ = checkpoint.path();
  const nlohmann::json& facts = checkpoint.state().facts;
  const nlohmann::json& extra = checkpoint.state().extra;
  verify(facts.contains("tokenizer") && extra.contains("config"), ErrorKind::checkpoint,
         "{} was not written by megatron_train: it lacks the run's configuration", path_);
  tokenizer_ = facts.at("tokenizer").get<std::string>();
  tokenizer_hash_ = facts.value("tokenizer_hash", std::uint64_t{0});
  config_ = parse_config_text(extra.at("config").get<std::string>(), path_ + " (its configuration)");
  config_.parallel = {};  // whatever the layout was that saved it
  config_.train.micro_batch_size = 1;
  resolve(config_, 1, nullptr);

  grid_ = std::make_unique<ProcessGrid>(world, GridShape{}, compute_.transport.get());
  region_ = std::make_unique<TensorRegion>(*grid_, false);
  stage_ = std::make_unique<GptStage>(config_.model, config_.parallel, *grid_, *region_, store_);
  store_.allocate(*compute_.backend.device, DType::f32);
  std::vector<Piece> pieces;
  for (const Parameter& parameter : store_.all()) {
    const std::int64_t count = parameter.elements();
    pieces.push_back({.name = parameter.name,
                      .global_shape = parameter.global_shape,
                      .box = parameter.box,
                      .first = 0,
                      .count = count,
                      .value = parameter.value.view({count}),
                      .m = {},
                      .v = {}});
  }
  checkpoint.read(world, pieces, *compute_.backend.device);
}

void Generator::next_logits(std::span<const std::int32_t> context) {
  const auto s = static_cast<std::int64_t>(context.size());
  const std::int64_t vocab = config_.model.vocab_size, padded = config_.model.padded_vocab();
  Device& device = *compute_.backend.device;
  if (integers_.bytes() < 2 * context.size_bytes()) integers_ = Buffer(device, 2 * context.size_bytes());
  std::vector<std::int32_t> positions(context.size());
  std::iota(positions.begin(), positions.end(), 0);
  MicroBatch batch;
  const Tensor tokens = integers_.tensor({s, 1}, DType::i32);
  const Tensor position_ids = integers_.tensor({s, 1}, DType::i32, context.size_bytes());
  device.copy_to_device(tokens.data(), context.data(), context.size_bytes());
  device.copy_to_device(position_ids.data(), positions.data(), context.size_bytes());
  batch.tokens = tokens;
  batch.position_ids = position_ids;
  batch.positions = position_ids.view({s});
  batch.sequence = s;
  batch.samples = 1;

  // The same pass twice: once to learn how much memory this length needs, once for real.
  const auto pass = [&](Ops& ops, Arena& saved, Arena& scratch) {
    const Tensor logits = saved.allocate("logits", {s, padded}, DType::f32);
    Context pass_context{
        .ops = ops, .region = *region_, .saved = saved, .scratch = scratch, .micro_batch = batch, .training = false};
    stage_->logits(pass_context, logits);
    return logits;
  };
  CountingOps counting;
  Arena saved_size("saved"), scratch_size("scratch");
  pass(counting, saved_size, scratch_size);
  if (saved_memory_.bytes() < saved_size.high_water()) saved_memory_ = Buffer(device, saved_size.high_water());
  if (scratch_memory_.bytes() < scratch_size.high_water()) scratch_memory_ = Buffer(device, scratch_size.high_water());
  Arena saved("saved", saved_memory_), scratch("scratch", scratch_memory_);
  const Tensor logits = pass(*compute_.backend.ops, saved, scratch).slice(0, s - 1, 1);
  logits_.resize(static_cast<std::size_t>(vocab));
  device.copy_to_host(logits_.data(), logits.data(), logits_.size() * sizeof(float));
}

void Generator::generate(std::vector<std::int32_t> prompt, std::int32_t end, const SamplingOptions& options,
                         const std::function<void(std::int32_t)>& emit) {
  internal_check(!prompt.empty(), "generation from an empty prompt");
  const auto longest = static_cast<std::size_t>(config_.model.sequence_length);  // later positions are not trained
  const std::size_t half = (longest + 1) / 2;
  for (std::int64_t i = 0; i < options.max_new_tokens; ++i) {
    // A full context is cut to its newer half and grows again: the last positions are the least trained ones.
    const std::size_t over = prompt.size() <= longest ? 0 : (prompt.size() - longest + half - 1) / half * half;
    const std::size_t used = prompt.size() - over;
    next_logits(std::span(prompt).last(used));
    const std::uint32_t word =
        philox4x32<7>({static_cast<std::uint32_t>(i), 0, 0, 0}, random_key(options.seed, 0, hash_name("sampling")))[0];
    const std::int32_t token = sample_token(logits_, options, word / 4294967296.0);
    if (token == end) return;
    prompt.push_back(token);
    emit(token);
  }
}

}  // namespace megatron
