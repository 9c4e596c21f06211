// TaskData: the examples of a task (config's [task]): its tokenizer, its files, and the samples of training, validation
// and test. Each rank reads the files for itself when the run starts; their hashes tell whether all have the same.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "data/finetuning/instructions.h"
#include "data/samples/labelled_samples.h"
#include "data/samples/samples.h"
#include "data/shards/token_shard.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

/// The examples of one of data.train, validation and test.
struct TaskSet {
  std::unique_ptr<Samples> samples;
  std::string summary;             ///< the data that was read, in words
  std::vector<std::string> notes;  ///< for the user
  std::uint64_t hash = 0;          ///< the files'
  std::size_t bytes = 0;           ///< host memory, on every rank
};

class TaskData {
 public:
  /// `config` needs [task], [data], model.sequence_length and train.seed, and where task.tokenizer is not given a
  /// checkpoint that the run starts from. Errors: configuration for a tokenizer that is not to be found, data for
  /// files.
  explicit TaskData(const Config& config);

  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  TaskSet& train() { return train_; }
  std::optional<TaskSet>& validation() { return validation_; }
  std::optional<TaskSet>& test() { return test_; }
  const TaskSet& train() const { return train_; }
  const std::optional<TaskSet>& validation() const { return validation_; }
  const std::optional<TaskSet>& test() const { return test_; }
  std::size_t bytes() const;  ///< all sets together
  /// Covers all files and the tokenizer.
  std::string fingerprint() const;

 private:
  TaskSet read(const char* key, const Blend& files, bool training) const;
  TaskSet read_labelled(const Blend& files, bool training) const;
  TaskSet read_instructions(const char* key, const Blend& files, bool training) const;
  template <class Read>
  void visit_files(const Blend& files, TaskSet& set, const Read& read_file) const;

  TaskConfig task_;
  std::int64_t sequence_length_;
  std::uint64_t seed_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Vocabulary vocabulary_;
  TaskSet train_;
  std::optional<TaskSet> validation_, test_;
};

/// Whether the model learns answers, in a template of conversations.
inline bool has_chat(const TaskConfig& task) {
  return task.name == "instructions";
}
/// The texts around each role's messages in instructions.
ChatTemplate chat_template_of(const TaskConfig& task);
/// The examples of a file for a task with a head. Error(data) if they have no labels or, where they may lack them, if
/// only some of all have.
void add_labelled_examples(const TaskConfig& task, const ExampleFile& file, Encoder& encoder, EncodedExamples& to,
                           bool may_lack_labels = false);
/// How the names of files end that a folder of this format's examples is read for.
std::string_view example_file_ending(const TaskConfig& task);
/// Columns of a batch that make an example.
std::int64_t columns_of_example(const TaskConfig& task);

/// For data that is opened for a run which starts over: run.directory's own checkpoint says nothing of it.
Config without_own_run(Config config);

/// The tokenizer of task.tokenizer; else that of the checkpoint that the run resumes from or starts with.
std::shared_ptr<const Tokenizer> tokenizer_of_task(const Config& config);

}  // namespace megatron
