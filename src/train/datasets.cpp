#include "train/datasets.h"

#include <algorithm>

#include "config/run_schedule.h"
#include "data/megatron_order.h"
#include "data/split.h"

namespace megatron {

namespace {

// Nothing if the documents do not make one sample.
std::optional<SampleSet> epoch_set(const DocumentRange& part, const Config& config, EpochOrder::Kind kind) {
  const std::int64_t s = config.model.sequence_length;
  if (part.tokens() < static_cast<std::uint64_t>(s) + 1) return {};
  return SampleSet{part.source, std::make_unique<EpochOrder>(part.source->document_start(part.first), part.tokens(), s,
                                                             config.train.seed, kind)};
}

// Nothing if there are no documents; a few tokens are repeated until they are enough.
std::optional<SampleSet> megatron_set(const DocumentRange& part, const Config& config, std::int64_t samples) {
  if (part.tokens() == 0) return {};
  return SampleSet{part.source, std::make_unique<MegatronOrder>(part.source->document_starts(), part.first, part.end,
                                                                config.model.sequence_length,
                                                                static_cast<std::uint32_t>(config.train.seed),
                                                                static_cast<std::uint64_t>(samples))};
}

}  // namespace

std::int64_t evaluation_batches(const Config& config, const SampleSet& samples) {
  const auto available = static_cast<std::int64_t>(samples.order->samples());
  return std::clamp<std::int64_t>(available / config.train.global_batch_size, 1, config.train.evaluate_steps);
}

Datasets::Datasets(const Config& config) : config_(config) {
  const DataConfig& data = config.data;
  const std::int64_t s = config.model.sequence_length;
  TokenDataset& source = open(data.train);
  std::array<double, 3> weights = parse_split(data.split);
  if (!data.validation.empty()) weights[1] = 0;
  if (!data.test.empty()) weights[2] = 0;
  verify(weights[0] > 0, ErrorKind::configuration, "data.split = \"{}\" leaves nothing to train on", data.split);
  const auto bounds = split_documents(source.documents(), weights);
  const DocumentRange train{&source, 0, bounds[1]};
  verify(train.tokens() > static_cast<std::uint64_t>(s), ErrorKind::data,
         "{}: the training split has {} tokens, and one sample of model.sequence_length = {} needs {}; use more text, "
         "a shorter sequence or another data.split",
         data.train, train.tokens(), s, s + 1);
  train_documents_ = train.end;
  facts_ = {.vocab_size = static_cast<std::int64_t>(source.vocabulary().size),
            .train_samples = static_cast<std::int64_t>((train.tokens() - 1) / static_cast<std::uint64_t>(s))};

  const auto whole = [&](const std::string& prefix) {
    TokenDataset& own = open(prefix);
    verify(own.vocabulary() == source.vocabulary(), ErrorKind::data,
           "{} was made with another tokenizer ({}) than {} ({}): use one for both", prefix, describe(own.vocabulary()),
           data.train, describe(source.vocabulary()));
    verify(own.tokens() > static_cast<std::uint64_t>(s), ErrorKind::data,
           "{} has {} tokens: not one sample of model.sequence_length = {}", prefix, own.tokens(), s);
    return DocumentRange{&own, 0, own.documents()};
  };
  const DocumentRange validation =
      data.validation.empty() ? DocumentRange{&source, bounds[1], bounds[2]} : whole(data.validation);
  const DocumentRange test = data.test.empty() ? DocumentRange{&source, bounds[2], bounds[3]} : whole(data.test);
  if (data.order == "megatron") {
    order_as_megatron(config, train, validation, test);
    return;
  }
  train_ = epoch_set(train, config, EpochOrder::Kind::shuffled);
  validation_ = epoch_set(validation, config, EpochOrder::Kind::sequential);
  test_ = epoch_set(test, config, EpochOrder::Kind::sequential);
}

// The sample counts are those of Megatron's pretraining: its validation set is as large as all evaluations of the run
// together, those at the interval and one more at the end.
void Datasets::order_as_megatron(const Config& config, const DocumentRange& train, const DocumentRange& validation,
                                 const DocumentRange& test) {
  const std::int64_t run = samples_of_run(config, facts_);
  order_samples_ = config.data.order_samples > 0 ? config.data.order_samples : run;
  order_steps_ = RunSchedule(config).steps_for_samples(order_samples_);
  document_lengths_ = train.source->hash_of_lengths(train_documents_);
  evaluation_samples_ = BatchSchedule(config.train.global_batch_size).samples_after(config.train.evaluate_steps);
  const std::int64_t evaluations = 1 + evaluations_within(config, facts_, order_steps_);
  train_ = megatron_set(train, config, order_samples_);
  validation_ =
      megatron_set(validation, config, BatchSchedule(evaluation_samples_).samples_after(evaluations));  // no overflow
  test_ = megatron_set(test, config, evaluation_samples_);
  verify(static_cast<std::uint64_t>(run) <= train_->order->samples(), ErrorKind::configuration,
         "the run has {} samples, but data.order_samples = {} makes an order of {}; raise it (which changes the order "
         "from the first sample on), or train for less",
         run, order_samples_, train_->order->samples());
}

std::int64_t Datasets::first_validation_sample(std::int64_t step) const {
  if (evaluation_samples_ == 0) return 0;
  return evaluations_within(config_, facts_, step < order_steps_ ? step - 1 : order_steps_) * evaluation_samples_;
}

TokenDataset& Datasets::open(const std::string& prefix) {
  sources_.push_back(std::make_unique<TokenDataset>(prefix));
  return *sources_.back();
}

std::string Datasets::fingerprint() const {
  std::string text;
  for (const auto& source : sources_) {
    text += fmt::format("{:016x} {:016x} ", source->set_hash(), source->vocabulary().hash);
  }
  return text;
}

}  // namespace megatron
