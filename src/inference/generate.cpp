#include "inference/generate.h"

#include <algorithm>
#include <cmath>

#include "base/notes.h"
#include "base/philox.h"

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
    double total = 0, sum = 0;
    for (std::size_t i = 0; i < count; ++i) total += sorted[i].probability;
    for (std::size_t i = 0; i < count; ++i) {
      sum += sorted[i].probability;
      if (sum > options.top_p * total) return i + 1;
    }
  }
  return count;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  verify(std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); }),
         ErrorKind::numerics,
         "not all of the model's logits are finite numbers: its training has diverged; generate from an older "
         "checkpoint");
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

Generator::Generator(const std::string& path, Communicator& world, Compute compute, const std::string& precision) {
  std::vector<std::string> warnings;
  const CheckpointReader checkpoint = open_named_checkpoint(world, path, warnings);
  for (const std::string& warning : warnings) print_warning(warning);
  path_ = checkpoint.path();
  const nlohmann::json& facts = checkpoint.state().facts;
  verify(facts.contains("tokenizer"), ErrorKind::checkpoint,
         "{} was not written by megatron_train: it has no tokenizer", path_);
  tokenizer_ = facts.at("tokenizer").get<std::string>();
  tokenizer_hash_ = facts.value("tokenizer_hash", std::uint64_t{0});
  Config config = config_for_inference(checkpoint);
  if (precision != "checkpoint") config.precision.compute = precision;
  const DType type = config.precision.dtype();
  model_ = std::make_unique<InferenceModel>(std::move(config), world, std::move(compute), type);
  model_->load(world, checkpoint);
}

void Generator::generate(std::vector<std::int32_t> prompt, std::int32_t end, const SamplingOptions& options,
                         const std::function<void(std::int32_t)>& emit) {
  internal_check(!prompt.empty(), "generation from an empty prompt");
  const auto longest =
      static_cast<std::size_t>(model_->config().model.sequence_length);  // later positions are not trained
  const std::size_t half = (longest + 1) / 2;
  for (std::int64_t i = 0; i < options.max_new_tokens; ++i) {
    // A full context is cut to its newer half and grows again: the last positions are the least trained ones.
    const std::size_t over = prompt.size() <= longest ? 0 : (prompt.size() - longest + half - 1) / half * half;
    const std::size_t used = prompt.size() - over;
    model_->logits(std::span(prompt).last(used), static_cast<std::int64_t>(used) - 1, logits_);
    const std::uint32_t word =
        philox4x32<7>({static_cast<std::uint32_t>(i), 0, 0, 0}, random_key(options.seed, 0, hash_name("sampling")))[0];
    const std::int32_t token = sample_token(logits_, options, word / 4294967296.0);
    if (token == end) return;
    prompt.push_back(token);
    emit(token);
  }
}

}  // namespace megatron
