#include "inference/generate.h"

#include "system/notes.h"

namespace megatron {

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
    penalize_repetition(logits_, prompt, options.repetition_penalty);
    const std::int32_t token = sample_token(logits_, options_at(options, i), sampling_uniform(options.seed, 0, 0, i));
    if (token == end) return;
    prompt.push_back(token);
    emit(token);
  }
}

}  // namespace megatron
