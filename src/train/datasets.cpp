#include "train/datasets.h"

#include <algorithm>

#include "base/philox.h"
#include "config/run_schedule.h"
#include "data/blend.h"
#include "data/megatron_order.h"
#include "data/split.h"

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

std::int64_t evaluation_batches(const Config& config, const SampleSet& samples) {
  const auto available = static_cast<std::int64_t>(samples.order->samples());
  return std::clamp<std::int64_t>(available / config.train.global_batch_size, 1, config.train.evaluate_steps);
}

Datasets::Datasets(const Config& config) : config_(config) {
  const DataConfig& data = config.data;
  const auto s = static_cast<std::uint64_t>(config.model.sequence_length);
  std::array<double, 3> weights = parse_split(data.split);
  if (!data.validation.empty()) weights[1] = 0;
  if (!data.test.empty()) weights[2] = 0;
  verify(weights[0] > 0, ErrorKind::configuration, "data.split = \"{}\" leaves nothing to train on", data.split);
  training_share_ = weights[0] / (weights[0] + weights[1] + weights[2]);
  for (DocumentRange range : open(data.train)) {
    const auto bounds = split_documents(range.source->documents(), weights);
    const auto part = [&](std::size_t i) {
      return DocumentRange{range.source, bounds[i], bounds[i + 1], range.weight};
    };
    train_ranges_.push_back(part(0));
    if (data.validation.empty()) validation_ranges_.push_back(part(1));
    if (data.test.empty()) test_ranges_.push_back(part(2));
    const std::uint64_t tokens = part(0).tokens();
    verify(
        tokens > s, ErrorKind::data,
        "{}: the training split has {} tokens, and one sample of model.sequence_length = {} needs {}; use more text, "
        "a shorter sequence or another data.split",
        range.source->path(), tokens, s, s + 1);
    facts_.train_samples += static_cast<std::int64_t>((tokens - 1) / s);
  }
  facts_.vocab_size = static_cast<std::int64_t>(train_source().vocabulary().size);
  if (!data.validation.empty()) validation_ranges_ = open_whole(data.validation);
  if (!data.test.empty()) test_ranges_ = open_whole(data.test);
  if (data.order == "megatron") {
    order_as_megatron();
  } else {
    order_by_epochs();
  }
}

/// The sets, all documents of each.
std::vector<DocumentRange> Datasets::open(const Blend& blend) {
  std::vector<DocumentRange> ranges;
  for (const BlendPart& part : blend.parts) {
    sources_.push_back(std::make_unique<TokenDataset>(part.path));
    TokenDataset& source = *sources_.back();
    verify(source.vocabulary() == train_source().vocabulary(), ErrorKind::data,
           "{} was made with another tokenizer ({}) than {} ({}): use one for both", part.path,
           describe(source.vocabulary()), train_source().path(), describe(train_source().vocabulary()));
    ranges.push_back({&source, 0, source.documents(), part.weight});
  }
  return ranges;
}

std::vector<DocumentRange> Datasets::open_whole(const Blend& blend) {
  const std::int64_t s = config_.model.sequence_length;
  std::vector<DocumentRange> ranges = open(blend);
  for (const DocumentRange& range : ranges) {
    verify(range.tokens() > static_cast<std::uint64_t>(s), ErrorKind::data,
           "{} has {} tokens: not one sample of model.sequence_length = {}", range.source->path(), range.tokens(), s);
  }
  return ranges;
}

/// The sets of a split that are too small for one sample; if some are left, the split goes on without the others.
void Datasets::leave_out_small(const char* split, std::vector<DocumentRange>& ranges, std::uint64_t least_tokens) {
  const auto small = [&](const DocumentRange& range) { return range.tokens() < least_tokens; };
  if (std::all_of(ranges.begin(), ranges.end(), small)) return ranges.clear();
  for (const DocumentRange& range : ranges) {
    if (!small(range)) continue;
    notes_.push_back(fmt::format("{}: data.split leaves {} no sample of {}: the {} blend goes without it", split,
                                 range.source->path(), config_.model.sequence_length, split));
  }
  std::erase_if(ranges, small);
}

/// make_order(range, its place among them, its normalised weight) gives each set's own order.
template <class MakeOrder>
SampleSet Datasets::blended(const std::vector<DocumentRange>& ranges, std::uint64_t samples,
                            const MakeOrder& make_order) {
  if (ranges.size() == 1) return {ranges[0].source, make_order(ranges[0], 0, std::optional<double>())};
  std::vector<TokenSource*> sources;
  std::vector<double> weights;
  for (const DocumentRange& range : ranges) {
    sources.push_back(range.source);
    weights.push_back(range.weight);
  }
  weights = normalised_weights(std::move(weights));
  TokenChain& chain = *chains_.emplace_back(std::make_unique<TokenChain>(std::move(sources)));
  std::vector<BlendedOrder::Part> parts;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    parts.push_back({make_order(ranges[i], i, std::optional(weights[i])), chain.start_of(i), ranges[i].weight,
                     ranges[i].source->path()});
  }
  return {&chain, std::make_unique<BlendedOrder>(std::move(parts), samples)};
}

// Nothing if the documents do not make one sample.
std::optional<SampleSet> Datasets::epoch_set(const char* split, std::vector<DocumentRange> ranges, bool shuffled) {
  const std::int64_t s = config_.model.sequence_length;
  leave_out_small(split, ranges, static_cast<std::uint64_t>(s) + 1);
  if (ranges.empty()) return {};
  std::uint64_t samples = 0;
  for (const DocumentRange& range : ranges) samples += (range.tokens() - 1) / static_cast<std::uint64_t>(s);
  return blended(ranges, samples, [&](const DocumentRange& range, std::size_t part, std::optional<double>) {
    return std::make_unique<const EpochOrder>(range.source->document_start(range.first), range.tokens(), s,
                                              seed_of_part(config_.train.seed, part),
                                              shuffled ? EpochOrder::Kind::shuffled : EpochOrder::Kind::sequential);
  });
}

// Nothing if there are no documents; a few tokens are repeated until they are enough.
std::optional<SampleSet> Datasets::megatron_set(const char* split, std::vector<DocumentRange> ranges,
                                                std::int64_t samples) {
  leave_out_small(split, ranges, 1);
  if (ranges.empty()) return {};
  const auto wanted = static_cast<std::uint64_t>(samples);
  return blended(ranges, wanted, [&](const DocumentRange& range, std::size_t, std::optional<double> weight) {
    return std::make_unique<const MegatronOrder>(
        range.source->document_starts(), range.first, range.end, config_.model.sequence_length,
        static_cast<std::uint32_t>(config_.train.seed), weight ? blend_samples(*weight, wanted) : wanted);
  });
}

void Datasets::order_by_epochs() {
  train_ = epoch_set("training", train_ranges_, true);
  validation_ = epoch_set("validation", validation_ranges_, false);
  test_ = epoch_set("test", test_ranges_, false);
}

// The sample counts are those of Megatron's pretraining: its validation set is as large as all evaluations of the run
// together, those at the interval and one more at the end.
void Datasets::order_as_megatron() {
  const Config& config = config_;
  const std::int64_t run = samples_of_run(config, facts_);
  order_samples_ = config.data.order_samples > 0 ? config.data.order_samples : run;
  order_steps_ = RunSchedule(config).steps_for_samples(order_samples_);
  evaluation_samples_ = BatchSchedule(config.train.global_batch_size).samples_after(config.train.evaluate_steps);
  const std::int64_t evaluations = 1 + evaluations_within(config, facts_, order_steps_);
  train_ = megatron_set("training", train_ranges_, order_samples_);
  validation_ = megatron_set("validation", validation_ranges_,
                             BatchSchedule(evaluation_samples_).samples_after(evaluations));  // no overflow
  test_ = megatron_set("test", test_ranges_, evaluation_samples_);
  verify(static_cast<std::uint64_t>(run) <= train_->order->samples(), ErrorKind::configuration,
         "the run has {} samples, but data.order_samples = {} makes an order of {}; raise it (which changes the order "
         "from the first sample on), or train for less",
         run, order_samples_, train_->order->samples());
}

std::int64_t Datasets::first_validation_sample(std::int64_t step) const {
  if (evaluation_samples_ == 0) return 0;
  return evaluations_within(config_, facts_, step < order_steps_ ? step - 1 : order_steps_) * evaluation_samples_;
}

// Without it nobody could tell where one document ends and the next begins.
std::int32_t Datasets::end_of_document() const {
  const auto end = static_cast<std::int32_t>(train_source().vocabulary().eod_id);
  if (!config_.data.knows_documents()) return end;
  for (const auto& source : sources_) {
    for (const DocumentEnd& document : source->document_ends()) {
      verify(document.token == end, ErrorKind::data,
             "{}: its {} document ends with token {} and not with the end of document, {}: where documents end cannot "
             "be told for data.reset_attention_mask, reset_position_ids or eod_mask_loss; make it again without "
             "--no-append-eod",
             document.shard, document.which, document.token, end);
    }
  }
  return end;
}

std::string Datasets::fingerprint() const {
  std::string text;
  for (const auto& source : sources_) {
    text += fmt::format("{:016x} {:016x} ", source->set_hash(), source->vocabulary().hash);
  }
  return text;
}

std::uint64_t Datasets::train_hash() const {
  const std::vector<std::uint64_t> hashes = train_sets();
  return hashes.size() == 1 ? hashes[0] : hash_of(hashes);
}

std::vector<std::uint64_t> Datasets::train_sets() const {
  std::vector<std::uint64_t> hashes;
  for (const DocumentRange& range : train_ranges_) hashes.push_back(range.source->set_hash());
  return hashes;
}

std::vector<double> Datasets::blend_weights() const {
  std::vector<double> weights;
  if (train_ranges_.size() == 1) return weights;
  for (const DocumentRange& range : train_ranges_) weights.push_back(range.weight);
  return normalised_weights(std::move(weights));
}

std::uint64_t Datasets::train_documents() const {
  std::uint64_t documents = 0;
  for (const DocumentRange& range : train_ranges_) documents += range.end;
  return documents;
}

std::uint64_t Datasets::document_lengths() const {
  std::vector<std::uint64_t> hashes;
  for (const DocumentRange& range : train_ranges_) hashes.push_back(range.source->hash_of_lengths(range.end));
  return hashes.size() == 1 ? hashes[0] : hash_of(hashes);
}

}  // namespace megatron
