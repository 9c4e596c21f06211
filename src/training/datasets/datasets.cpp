#include "training/datasets/datasets.h"

#include <algorithm>

#include "base/core/philox.h"
#include "config/schema/run_schedule.h"
#include "config/schema/split.h"
#include "data/samples/blend.h"
#include "data/samples/blended_samples.h"
#include "data/samples/megatron_order.h"
#include "data/shards/kept_tokenizer.h"
#include "data/shards/shard_provenance.h"
#include "data/shards/split.h"
#include "training/datasets/document_ends.h"
#include "training/datasets/family_samples.h"

namespace megatron {

namespace {

/// So that sets of one size do not go through their samples in step.
std::uint64_t seed_of_part(std::uint64_t seed, std::size_t part) {
  return part == 0 ? seed : random_key(seed, part, hash_name("set of a blend"));
}

std::uint64_t hash_of(const std::vector<std::uint64_t>& numbers) {
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof(std::uint64_t));
}

}  // namespace

std::int64_t evaluation_samples(const Config& config, const SampleSet& samples) {
  const auto available = static_cast<std::int64_t>(samples.samples->samples());
  const std::int64_t batch = config.train.global_batch_size;
  if (config.task.given()) return available;
  return available / batch < config.train.evaluate_steps ? available : config.train.evaluate_steps * batch;
}

Datasets::Datasets(const Config& config) : config_(config) {
  const FamilySamples& family = samples_of_family(config.model);  // refuses one without any before data is read
  if (config.task.given()) {
    open_task();
    return;
  }
  if (family.of_sentences != nullptr) sentences_ = std::make_unique<SentenceSets>(config);
  const DataConfig& data = config.data;
  std::array<double, 3> shares = parse_split(data.split).value_or(std::array<double, 3>{});
  if (!data.validation.empty()) shares[1] = 0;
  if (!data.test.empty()) shares[2] = 0;
  verify(shares[0] > 0, ErrorKind::configuration, "data.split = \"{}\" leaves nothing to train on", data.split);
  training_share_ = shares[0] / (shares[0] + shares[1] + shares[2]);
  for (const SplitPart& whole : open(data.train)) {
    std::array<SplitPart, 3> parts = cut(whole, shares);
    for (SplitPart& part : parts) part.samples = samples_of_a_pass(part);
    train_parts_.push_back(parts[0]);
    if (data.validation.empty()) validation_parts_.push_back(parts[1]);
    if (data.test.empty()) test_parts_.push_back(parts[2]);
    require_training_sample(parts[0]);
    facts_.train_samples += static_cast<std::int64_t>(parts[0].samples);
  }
  facts_.train_samples = std::max<std::int64_t>(facts_.train_samples, 1);
  facts_.vocab_size = static_cast<std::int64_t>(train_source().vocabulary().size);
  if (!data.validation.empty()) validation_parts_ = open_whole(data.validation);
  if (!data.test.empty()) test_parts_ = open_whole(data.test);
  if (data.megatrons_order()) {
    order_as_megatron();
  } else {
    order_by_epochs();
  }
  // They could not be found without the token.
  if (data.knows_documents()) require_document_ends(sources_, static_cast<std::int32_t>(vocabulary().eod_id));
}

void Datasets::open_task() {
  task_ = std::make_unique<TaskData>(config_);
  const auto set_of = [this](TaskSet& set) {
    notes_.insert(notes_.end(), set.notes.begin(), set.notes.end());
    SampleSet samples;
    samples.samples = std::move(set.samples);
    return samples;
  };
  train_ = set_of(task_->train());
  if (task_->validation()) validation_ = set_of(*task_->validation());
  if (task_->test()) test_ = set_of(*task_->test());
  facts_ = {.vocab_size = static_cast<std::int64_t>(task_->vocabulary().size),
            .train_samples = static_cast<std::int64_t>(train_->samples->samples()),
            .host_bytes = task_->bytes()};
}

std::shared_ptr<const Tokenizer> Datasets::tokenizer() const {
  if (task_) return task_->tokenizer();
  return tokenizer_of_data(sources_);
}

void Datasets::keep_with_run(const std::string& run_directory, Log& log) const {
  if (task_) return keep_tokenizer(run_directory, *task_->tokenizer());
  keep_tokenizer(run_directory, sources_, log);
  keep_provenance(run_directory, sources_, log);
}

// megatron-core repeats a few tokens until they are enough.
std::uint64_t Datasets::least_tokens() const {
  return config_.data.order == "megatron_core" ? 1 : static_cast<std::uint64_t>(config_.model.sequence_length) + 1;
}

std::uint64_t Datasets::samples_of_a_pass(const SplitPart& part) {
  if (sentences_ != nullptr) return sentences_->samples_of_a_pass(part);
  return part.tokens == 0 ? 0 : (part.tokens - 1) / static_cast<std::uint64_t>(config_.model.sequence_length);
}

const char* Datasets::sentences_of_sample() const {
  return samples_of_family(config_.model).fewest_sentences == 1 ? "a sentence" : "two sentences";
}

bool Datasets::is_small(const SplitPart& part, std::uint64_t least) const {
  return sentences_ != nullptr ? part.samples == 0 : part.tokens < least;
}

void Datasets::require_training_sample(const SplitPart& part) const {
  if (!is_small(part, least_tokens())) return;
  verify(sentences_ == nullptr, ErrorKind::data,
         "{}: the training split has {} of its {} documents, and none of them makes a sample, which takes {} of one "
         "document{}; use more text, another data.split, or sentences that megatron_preprocess finds "
         "(--split-sentences, --sentences lines, or array)",
         part.source->path(), part.end_document - part.first_document, part.source->documents(), sentences_of_sample(),
         config_.data.megatrons_order() ? ", none of them longer than 512 tokens," : "");
  const std::int64_t s = config_.model.sequence_length;
  fail(ErrorKind::data,
       "{}: the training split has {} tokens, and one sample of model.sequence_length = {} needs {}; use more text, a "
       "shorter sequence or another data.split",
       part.source->path(), part.tokens, s, s + 1);
}

SampleSet Datasets::with_samples(SampleSet set, bool training) {
  set.samples = samples_of_family(config_.model)
                    .of_tokens(config_, {.source = *set.source,
                                         .order = *set.order,
                                         .vocabulary = train_source().vocabulary(),
                                         .training = training});
  return set;
}

std::array<SplitPart, 3> Datasets::cut(const SplitPart& whole, const std::array<double, 3>& shares) {
  const DataConfig& data = config_.data;
  const TokenDataset& source = *whole.source;
  const bool few = source.documents() < kFewDocuments && !data.megatrons_order() && sentences_ == nullptr;
  std::array<SplitPart, 3> parts{whole, whole, whole};
  const SplitBounds documents = data.order == "megatron_core" ? split_rounding_boundaries(source.documents(), shares)
                                                              : split_rounding_parts(source.documents(), shares);
  for (std::size_t i = 0; i < 3; ++i) {
    parts[i].first_document = documents[i];
    parts[i].end_document = documents[i + 1];
    parts[i].first_token = source.document_start(documents[i]);
    parts[i].tokens = source.document_start(documents[i + 1]) - parts[i].first_token;
  }
  if (data.split_by == "documents" || (data.split_by == "auto" && !few)) return parts;
  const SplitBounds tokens = split_rounding_boundaries(source.tokens(), shares);
  cut_by_tokens_ |= tokens[1] != parts[0].tokens;
  for (std::size_t i = 0; i < 3; ++i) {
    parts[i] = {.source = whole.source,
                .first_token = tokens[i],
                .tokens = tokens[i + 1] - tokens[i],
                .cut_by_tokens = true,
                .weight = whole.weight,
                .name = whole.name};
  }
  return parts;
}

/// The sets, all documents of each.
std::vector<SplitPart> Datasets::open(const Blend& blend) {
  std::vector<SplitPart> parts;
  for (const BlendPart& part : blend.parts) {
    sources_.push_back(std::make_unique<TokenDataset>(part.path));
    TokenDataset& source = *sources_.back();
    verify(source.vocabulary() == train_source().vocabulary(), ErrorKind::data,
           "{} was made with another tokenizer ({}) than {} ({}): use one for both", part.path,
           describe(source.vocabulary()), train_source().path(), describe(train_source().vocabulary()));
    const std::uint64_t seed = config_.train.seed;
    parts.push_back({.source = &source,
                     .tokens = source.tokens(),
                     .end_document = source.documents(),
                     .weight = part.weight,
                     .name = part.name,
                     .seed = config_.data.megatrons_order() ? seed : seed_of_part(seed, parts.size())});
  }
  return parts;
}

std::vector<SplitPart> Datasets::open_whole(const Blend& blend) {
  std::vector<SplitPart> parts = open(blend);
  for (SplitPart& part : parts) {
    part.samples = samples_of_a_pass(part);
    const bool small = is_small(part, least_tokens());
    verify(!small || sentences_ == nullptr, ErrorKind::data,
           "{} has {} documents: not one sample, which takes {} of one of them", part.source->path(), part.end_document,
           sentences_of_sample());
    verify(!small, ErrorKind::data, "{} has {} tokens: not one sample of model.sequence_length = {}",
           part.source->path(), part.tokens, config_.model.sequence_length);
  }
  return parts;
}

/// Leaves out the sets of a split that are too small for one sample: all of them, or some with a note each.
void Datasets::leave_out_small(const char* split, std::vector<SplitPart>& parts, std::uint64_t least) {
  const auto small = [&](const SplitPart& part) { return is_small(part, least); };
  if (std::all_of(parts.begin(), parts.end(), small)) return parts.clear();
  for (const SplitPart& part : parts) {
    if (!small(part)) continue;
    notes_.push_back(fmt::format("{}: data.split leaves {} no sample of {}: the {} blend goes without it", split,
                                 part.source->path(), config_.model.sequence_length, split));
  }
  std::erase_if(parts, small);
}

std::vector<double> Datasets::weights_of(const std::vector<SplitPart>& parts) const {
  std::vector<double> weights;
  for (const SplitPart& part : parts) weights.push_back(part.weight);
  return config_.data.order == "megatron_core" ? numpy_normalised_weights(std::move(weights))
                                               : normalised_weights(std::move(weights));
}

/// make_order(part, its place among them, its normalised weight) gives each set's own order.
template <class MakeOrder>
SampleSet Datasets::blended(const std::vector<SplitPart>& parts, std::uint64_t samples, const MakeOrder& make_order) {
  if (parts.size() == 1) return {parts[0].source, make_order(parts[0], 0, std::optional<double>())};
  std::vector<TokenSource*> sources;
  for (const SplitPart& part : parts) sources.push_back(part.source);
  const std::vector<double> weights = weights_of(parts);
  TokenChain& chain = *chains_.emplace_back(std::make_unique<TokenChain>(std::move(sources)));
  std::vector<BlendedOrder::Part> blend;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    blend.push_back(
        {make_order(parts[i], i, std::optional(weights[i])), chain.start_of(i), weights[i], parts[i].source->path()});
  }
  return {&chain, std::make_unique<BlendedOrder>(std::move(blend), samples)};
}

SampleSet Datasets::of_sentences(const std::vector<SplitPart>& parts, SentenceOrder order, std::uint64_t wanted) {
  SampleSet set;
  if (parts.size() == 1) {
    set.samples = sentences_->make(parts[0], order, wanted);
    return set;
  }
  const auto asked_for = config_.data.order == "megatron_core" ? core_blend_samples : blend_samples;
  const std::vector<double> weights = weights_of(parts);
  std::vector<BlendedSamples::Part> blend(parts.size());
  std::uint64_t pass = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::uint64_t of_part = order == SentenceOrder::megatron ? asked_for(weights[i], wanted) : 0;
    blend[i] = {sentences_->make(parts[i], order, of_part), weights[i], parts[i].source->path()};
    pass += parts[i].samples;
  }
  set.samples = std::make_unique<BlendedSamples>(std::move(blend), order == SentenceOrder::megatron ? wanted : pass);
  return set;
}

// Nothing if there is not one sample.
std::optional<SampleSet> Datasets::epoch_set(const char* split, std::vector<SplitPart> parts, bool training) {
  const std::int64_t s = config_.model.sequence_length;
  leave_out_small(split, parts, static_cast<std::uint64_t>(s) + 1);
  if (parts.empty()) return {};
  if (sentences_ != nullptr) {
    return of_sentences(parts, training ? SentenceOrder::shuffled : SentenceOrder::sequential, 0);
  }
  std::uint64_t samples = 0;
  for (const SplitPart& part : parts) samples += part.samples;
  const auto make_order = [&](const SplitPart& part, std::size_t place, std::optional<double>) {
    return std::make_unique<const EpochOrder>(part.first_token, part.tokens, s, seed_of_part(config_.train.seed, place),
                                              training ? EpochOrder::Kind::shuffled : EpochOrder::Kind::sequential);
  };
  return with_samples(blended(parts, samples, make_order), training);
}

// Nothing if there are no documents; a few tokens are repeated until they are enough.
std::optional<SampleSet> Datasets::megatron_set(const char* split, std::vector<SplitPart> parts, std::int64_t samples,
                                                bool training) {
  leave_out_small(split, parts, 1);
  if (parts.empty()) return {};
  const auto wanted = static_cast<std::uint64_t>(samples);
  if (sentences_ != nullptr) return of_sentences(parts, SentenceOrder::megatron, wanted);
  const auto asked_for = config_.data.order == "megatron_core" ? core_blend_samples : blend_samples;
  const auto make_order = [&](const SplitPart& part, std::size_t, std::optional<double> weight) {
    return std::make_unique<const MegatronOrder>(part.source->document_starts(), part.first_document, part.end_document,
                                                 config_.model.sequence_length,
                                                 static_cast<std::uint32_t>(config_.train.seed),
                                                 weight ? asked_for(*weight, wanted) : wanted, config_.data.order);
  };
  return with_samples(blended(parts, wanted, make_order), training);
}

// One set of all parts; or one of each, if they have names.
template <class MakeSet>
void Datasets::make_evaluated(const char* split, const std::vector<SplitPart>& parts, const MakeSet& make_set,
                              std::optional<SampleSet>& whole, std::vector<NamedSet>& sets) {
  if (parts.empty() || parts.front().name.empty()) {
    whole = make_set(split, parts);
    return;
  }
  std::vector<SplitPart> good;
  for (const SplitPart& part : parts) {
    std::optional<SampleSet> set = make_set(split, {part});
    if (set) {
      sets.push_back({.name = part.name, .samples = *std::move(set)});
      good.push_back(part);
    } else {
      notes_.push_back(fmt::format("{}: data.split leaves \"{}\" no sample of {}: it is not evaluated on", split,
                                   part.name, config_.model.sequence_length));
    }
  }
  const std::vector<double> shares = good.empty() ? std::vector<double>() : weights_of(good);
  for (std::size_t i = 0; i < sets.size(); ++i) sets[i].share = shares[i];
}

void Datasets::order_by_epochs() {
  train_ = epoch_set("training", train_parts_, true);
  const auto evaluated = [&](const char* split, std::vector<SplitPart> parts) {
    return epoch_set(split, std::move(parts), false);
  };
  make_evaluated("validation", validation_parts_, evaluated, validation_, validation_sets_);
  make_evaluated("test", test_parts_, evaluated, test_, test_sets_);
}

// The sample counts are those of Megatron's pretraining: its validation set is as large as all evaluations of the run
// together, those at the interval and one more at the end.
void Datasets::order_as_megatron() {
  const Config& config = config_;
  const std::int64_t run = samples_with_consumed(config, facts_);
  order_samples_ = config.data.order_samples > 0 ? config.data.order_samples : run;
  order_steps_ = RunSchedule(config).steps_for_samples(order_samples_);
  evaluation_samples_ = BatchSchedule(config.train.global_batch_size).samples_after(config.train.evaluate_steps);
  const std::int64_t evaluations = 1 + evaluations_within(config, facts_, order_steps_);
  train_ = megatron_set("training", train_parts_, order_samples_, true);
  const std::int64_t validated = BatchSchedule(evaluation_samples_).samples_after(evaluations);  // no overflow
  const auto of_samples = [&](std::int64_t samples) {
    return [this, samples](const char* split, std::vector<SplitPart> parts) {
      return megatron_set(split, std::move(parts), samples, false);
    };
  };
  make_evaluated("validation", validation_parts_, of_samples(validated), validation_, validation_sets_);
  make_evaluated("test", test_parts_, of_samples(evaluation_samples_), test_, test_sets_);
  verify(
      static_cast<std::uint64_t>(run) <= train_->samples->samples(), ErrorKind::configuration,
      "the run has {} samples{}, but data.order_samples = {} makes an order of {}; raise it (which changes the order "
      "from the first sample on), or train for less",
      run, config.checkpoint.consumed_samples > 0 ? " with checkpoint.consumed_samples" : "", order_samples_,
      train_->samples->samples());
}

std::int64_t Datasets::first_validation_sample(std::int64_t step) const {
  if (evaluation_samples_ == 0 || step == 0) return 0;
  return evaluations_within(config_, facts_, step < order_steps_ ? step - 1 : order_steps_) * evaluation_samples_;
}

std::string Datasets::fingerprint() const {
  if (task_) return task_->fingerprint();
  std::string text;
  for (const auto& source : sources_) {
    text += fmt::format("{:016x} {:016x} ", source->set_hash(), source->vocabulary().hash);
  }
  return text;
}

std::uint64_t Datasets::train_hash() const {
  if (task_) return task_->train().hash;
  const std::vector<std::uint64_t> hashes = train_sets();
  return hashes.size() == 1 ? hashes[0] : hash_of(hashes);
}

std::vector<std::uint64_t> Datasets::train_sets() const {
  std::vector<std::uint64_t> hashes;
  for (const SplitPart& part : train_parts_) hashes.push_back(part.source->set_hash());
  return hashes;
}

std::vector<double> Datasets::blend_weights() const {
  std::vector<double> weights;
  if (train_parts_.size() <= 1) return weights;
  for (const SplitPart& part : train_parts_) weights.push_back(part.weight);
  return normalised_weights(std::move(weights));
}

std::uint64_t Datasets::train_documents() const {
  std::uint64_t documents = 0;
  for (const SplitPart& part : train_parts_) documents += part.end_document;
  return documents;
}

std::uint64_t Datasets::document_lengths() const {
  std::vector<std::uint64_t> hashes;
  for (const SplitPart& part : train_parts_) hashes.push_back(part.source->hash_of_lengths(part.end_document));
  return hashes.size() == 1 ? hashes[0] : hash_of(hashes);
}

}  // namespace megatron
