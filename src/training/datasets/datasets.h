// Datasets: the token shards an input file names, and the samples of its three splits: of tokens in a row, or of whole
// sentences (family_samples.h), whose splits are always of documents. A split is one set's or a blend's
// (data/samples/blend.h). data.split cuts each set of data.train by itself, by documents or by tokens
// (docs/sample_order.md), and the parts have the weights of their sets. Each rank opens the shards for itself. With
// [task] the samples are examples instead (task_data.h), and everything about sets of tokens and their division is
// empty. Knows nothing of batches.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "base/system/log.h"
#include "config/rules/resolve.h"
#include "data/samples/sample_order.h"
#include "data/samples/samples.h"
#include "data/shards/token_dataset.h"
#include "training/datasets/sentence_sets.h"
#include "training/datasets/split_part.h"
#include "training/datasets/task_data.h"

namespace megatron {

/// A split that has at least one sample, and what its samples are made of.
struct SampleSet {
  TokenSource* source = nullptr;             ///< for tokens in a row
  std::unique_ptr<const SampleOrder> order;  ///< the same
  std::unique_ptr<Samples> samples = nullptr;
};

/// One of the sets of a split that are evaluated one by one.
struct NamedSet {
  std::string name;
  double share = 1;  ///< in the split's loss; all shares of a split add up to 1
  SampleSet samples = {};
};

/// Samples of one evaluation on the set: those of train.evaluate_steps global batches, or all that it has. With [task]
/// always all.
std::int64_t evaluation_samples(const Config& config, const SampleSet& samples);

class Datasets {
 public:
  /// `model.sequence_length` and `train.seed` must be set, with Megatron's orders the run's length, batches and
  /// evaluations as well; nothing else need be resolved. With data.validation (or data.test) of their own, data.split
  /// cuts only what remains with data.train.
  explicit Datasets(const Config& config);

  DataFacts facts() const { return facts_; }
  const SampleSet& train() const { return *train_; }
  const std::optional<SampleSet>& validation() const { return validation_; }
  const std::optional<SampleSet>& test() const { return test_; }
  /// The same where the sets have names: then there is no validation() or test() of all of them.
  const std::vector<NamedSet>& validation_sets() const { return validation_sets_; }
  const std::vector<NamedSet>& test_sets() const { return test_sets_; }
  /// The sample of validation() that the evaluation after `step` begins with: always the first, or with Megatron's
  /// order the next one after those of all evaluations before. The evaluation before the first step has those of the
  /// first one after it.
  std::int64_t first_validation_sample(std::int64_t step) const;

  std::string fingerprint() const;                                  ///< all token sets: equal for equal contents
  std::uint64_t train_hash() const;                                 ///< hash of the contents of data.train
  std::vector<std::uint64_t> train_sets() const;                    ///< the same of each of its sets, in their order
  double training_share() const { return training_share_; }         ///< each set's, by data.split
  const std::vector<std::string>& notes() const { return notes_; }  ///< for the user, each a line
  /// Normalised weights of data.train, if it is a blend; else empty.
  std::vector<double> blend_weights() const;
  /// Parts that validation() and test() are made of, in the order of their blends.
  const std::vector<SplitPart>& validation_parts() const { return validation_parts_; }
  const std::vector<SplitPart>& test_parts() const { return test_parts_; }
  const std::vector<SplitPart>& train_parts() const { return train_parts_; }  ///< train()'s
  /// Whether some training part ends elsewhere than whole documents would: not known to older checkpoints' orders.
  bool cut_by_tokens() const { return cut_by_tokens_; }
  /// With Megatron's orders: the sample count that it is made for, the documents it shuffles and a hash of their
  /// lengths.
  std::int64_t order_samples() const { return order_samples_; }
  std::uint64_t train_documents() const;
  std::uint64_t document_lengths() const;
  /// Vocabulary of the tokens: one for all splits.
  const Vocabulary& vocabulary() const { return task_ ? task_->vocabulary() : sources_.front()->vocabulary(); }
  /// Nullptr if it needs files that are not there, or is not known.
  std::shared_ptr<const Tokenizer> tokenizer() const;
  /// As keep_tokenizer() and keep_provenance() of data/shards. For one rank.
  void keep_with_run(const std::string& run_directory, Log& log) const;
  /// Path that data.train names, for messages.
  std::string train_path() const { return config_.data.train.parts.front().path; }
  /// With [task]; else null.
  const TaskData* task() const { return task_.get(); }

 private:
  const TokenDataset& train_source() const { return *sources_.front(); }
  void open_task();
  std::vector<SplitPart> open(const Blend& blend);
  std::array<SplitPart, 3> cut(const SplitPart& whole, const std::array<double, 3>& shares);
  std::vector<SplitPart> open_whole(const Blend& blend);
  void order_by_epochs();
  void order_as_megatron();
  template <class MakeSet>
  void make_evaluated(const char* split, const std::vector<SplitPart>& parts, const MakeSet& make_set,
                      std::optional<SampleSet>& whole, std::vector<NamedSet>& sets);
  std::optional<SampleSet> epoch_set(const char* split, std::vector<SplitPart> parts, bool training);
  std::optional<SampleSet> megatron_set(const char* split, std::vector<SplitPart> parts, std::int64_t samples,
                                        bool training);
  template <class MakeOrder>
  SampleSet blended(const std::vector<SplitPart>& parts, std::uint64_t samples, const MakeOrder& make_order);
  SampleSet of_sentences(const std::vector<SplitPart>& parts, SentenceOrder order, std::uint64_t wanted);
  SampleSet with_samples(SampleSet set, bool training);
  std::vector<double> weights_of(const std::vector<SplitPart>& parts) const;
  std::uint64_t samples_of_a_pass(const SplitPart& part);
  std::uint64_t least_tokens() const;
  const char* sentences_of_sample() const;  ///< at least, in words
  bool is_small(const SplitPart& part, std::uint64_t least_tokens) const;
  void require_training_sample(const SplitPart& part) const;
  void leave_out_small(const char* split, std::vector<SplitPart>& parts, std::uint64_t least_tokens);

  Config config_;
  std::unique_ptr<TaskData> task_;
  std::unique_ptr<SentenceSets> sentences_;  // for families whose samples are made of them
  std::vector<std::unique_ptr<TokenDataset>> sources_;
  std::vector<std::unique_ptr<TokenChain>> chains_;  // for blends
  DataFacts facts_;
  double training_share_ = 1;
  bool cut_by_tokens_ = false;
  std::vector<SplitPart> train_parts_, validation_parts_, test_parts_;
  std::vector<std::string> notes_;
  std::optional<SampleSet> train_, validation_, test_;
  std::vector<NamedSet> validation_sets_, test_sets_;
  // With Megatron's orders: the sample count, the steps of a run of that length, and samples of one evaluation.
  std::int64_t order_samples_ = 0, order_steps_ = 0, evaluation_samples_ = 0;
};

}  // namespace megatron
