#include "train/datasets.h"

#include "data/split.h"

namespace megatron {

namespace {

// Documents [first, end) as a set, or nothing if they do not make one sample.
std::optional<SampleSet> sample_set(TokenDataset& source, std::uint64_t first, std::uint64_t end, const Config& config,
                                    SampleOrder::Kind kind) {
  const std::uint64_t first_token = source.document_start(first);
  const std::uint64_t tokens = source.document_start(end) - first_token;
  const std::int64_t s = config.model.sequence_length;
  if (tokens < static_cast<std::uint64_t>(s) + 1) return {};
  return SampleSet{&source, SampleOrder(first_token, tokens, s, config.train.seed, kind)};
}

}  // namespace

Datasets::Datasets(const Config& config) {
  const DataConfig& data = config.data;
  TokenDataset& source = open(data.train);
  std::array<double, 3> weights = parse_split(data.split);
  if (!data.validation.empty()) weights[1] = 0;
  if (!data.test.empty()) weights[2] = 0;
  verify(weights[0] > 0, ErrorKind::configuration, "data.split = \"{}\" leaves nothing to train on", data.split);
  const auto bounds = split_documents(source.documents(), weights);
  const auto part = [&](std::size_t i, SampleOrder::Kind kind) {
    return sample_set(source, bounds[i], bounds[i + 1], config, kind);
  };
  train_ = part(0, SampleOrder::Kind::shuffled);
  verify(train_.has_value(), ErrorKind::data,
         "{}: the training split has {} tokens, and one sample of model.sequence_length = {} needs {}; use more text, "
         "a shorter sequence or another data.split",
         data.train, source.document_start(bounds[1]), config.model.sequence_length, config.model.sequence_length + 1);
  const auto whole = [&](const std::string& prefix) {
    TokenDataset& own = open(prefix);
    verify(own.vocabulary() == source.vocabulary(), ErrorKind::data,
           "{} was made with another tokenizer ({}) than {} ({}): use one for both", prefix, describe(own.vocabulary()),
           data.train, describe(source.vocabulary()));
    const auto set = sample_set(own, 0, own.documents(), config, SampleOrder::Kind::sequential);
    verify(set.has_value(), ErrorKind::data, "{} has {} tokens: not one sample of model.sequence_length = {}", prefix,
           own.tokens(), config.model.sequence_length);
    return set;
  };
  validation_ = data.validation.empty() ? part(1, SampleOrder::Kind::sequential) : whole(data.validation);
  test_ = data.test.empty() ? part(2, SampleOrder::Kind::sequential) : whole(data.test);
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

DataFacts Datasets::facts() const {
  return {.vocab_size = static_cast<std::int64_t>(train_source().vocabulary().size),
          .train_samples = static_cast<std::int64_t>(train_->order.samples_per_epoch())};
}

}  // namespace megatron
