#include "training/datasets/task_data.h"

#include <xxhash.h>

#include <algorithm>

#include "base/text/text.h"
#include "checkpoint/store/folder.h"
#include "config/schema/task.h"
#include "data/finetuning/example_files.h"
#include "data/samples/chat_text.h"
#include "data/samples/instruction_samples.h"
#include "data/samples/labelled_samples.h"
#include "data/shards/kept_tokenizer.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"

namespace megatron {

namespace {

/// The checkpoint that says which tokenizer it is: the run's own first, as when it is resumed. Empty: there is none.
std::string checkpoint_with_tokenizer(const Config& config) {
  std::vector<std::string> unused;
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (checkpoint.resume && !find_checkpoints(config.run.directory).empty()) {
    return find_named_checkpoint(config.run.directory, unused);
  }
  const std::string& other = !checkpoint.load.empty() ? checkpoint.load : checkpoint.initialize_from;
  return other.empty() ? "" : find_named_checkpoint(other, unused);
}

std::unique_ptr<Tokenizer> tokenizer_of(const std::string& checkpoint) {
  const nlohmann::json facts = read_complete_manifest(checkpoint).state.facts;
  const auto name = facts.find("tokenizer"), hash = facts.find("tokenizer_hash");
  verify(name != facts.end() && name->is_string() && hash != facts.end() && hash->is_number_unsigned(),
         ErrorKind::configuration, "{} does not say which tokenizer it was trained with; give task.tokenizer",
         checkpoint);
  return tokenizer_of_checkpoint(checkpoint, name->get<std::string>(), hash->get<std::uint64_t>(), "", "");
}

std::uint64_t hash_of(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

ExampleForm form_of(const TaskConfig& task, bool may_lack_labels) {
  verify(task.name != "classification" || !labels_of(task).empty(), ErrorKind::configuration, "there are no labels");
  return {
      .format = task.format, .labels = labels_of(task), .choices = task.choices, .may_lack_labels = may_lack_labels};
}

}  // namespace

ChatTemplate chat_template_of(const TaskConfig& task) {
  return {{{"system", task.system_prefix, task.system_suffix, false},
           {"user", task.user_prefix, task.user_suffix, false},
           {"assistant", task.assistant_prefix, task.assistant_suffix, true}}};
}

void add_labelled_examples(const TaskConfig& task, const ExampleFile& file, Encoder& encoder, EncodedExamples& to,
                           bool may_lack_labels) {
  const std::uint64_t before = to.size();
  read_labelled_examples(file, form_of(task, may_lack_labels), [&](const LabelledExample& example) {
    const bool labelled = example.label >= 0;
    verify(labelled || may_lack_labels, ErrorKind::data,
           "{} has no labels, as test files of GLUE are published; name a file that has them, or predict them with "
           "megatron_eval --predictions",
           file.path);
    verify(to.size() == 0 || labelled == (to.label(0) >= 0), ErrorKind::data,
           "{}: example {} has {} label, but the first example has {}; label all examples or none", file.path,
           to.size() - before + 1, labelled ? "a" : "no", labelled ? "none" : "one");
    to.add(encoder, example);
  });
}

std::string_view example_file_ending(const TaskConfig& task) {
  return task.format == "race" ? ".txt" : task.format == "json" ? ".jsonl" : ".tsv";
}

std::int64_t columns_of_example(const TaskConfig& task) {
  return task.name == "multiple_choice" ? task.choices : 1;
}

Config without_own_run(Config config) {
  config.checkpoint.resume = false;
  return config;
}

std::shared_ptr<const Tokenizer> tokenizer_of_task(const Config& config) {
  const TaskConfig& task = config.task;
  if (!task.tokenizer.empty()) {
    return make_tokenizer({task.tokenizer, task.vocab_file, task.merge_file, task.extra_ids});
  }
  const std::string checkpoint = checkpoint_with_tokenizer(config);
  verify(!checkpoint.empty(), ErrorKind::configuration,
         "task.name = \"{}\" reads texts and needs a tokenizer; start from a checkpoint, which knows its own "
         "(checkpoint.initialize_from), or give task.tokenizer",
         task.name);
  return tokenizer_of(checkpoint);
}

TaskData::TaskData(const Config& config)
    : task_(config.task),
      sequence_length_(config.model.sequence_length),
      seed_(config.train.seed),
      tokenizer_(tokenizer_of_task(config)),
      vocabulary_(vocabulary_of(*tokenizer_)),
      train_(read("data.train", config.data.train, true)) {
  if (!config.data.validation.empty()) validation_ = read("data.validation", config.data.validation, false);
  if (!config.data.test.empty()) test_ = read("data.test", config.data.test, false);
}

template <class Read>
void TaskData::visit_files(const Blend& files, TaskSet& set, const Read& read_file) const {
  for (const BlendPart& part : files.parts) {
    for (const std::string& path : example_files(part.path, std::string(example_file_ending(task_)))) {
      const std::string text = read_example_file(path);
      set.hash = hash_of(text, set.hash);
      read_file(ExampleFile{path, text});
    }
  }
}

TaskSet TaskData::read(const char* key, const Blend& files, bool training) const {
  return task_.has_head() ? read_labelled(files, training) : read_instructions(key, files, training);
}

TaskSet TaskData::read_labelled(const Blend& files, bool training) const {
  const std::unique_ptr<Encoder> encoder = tokenizer_->make_encoder();
  const auto examples = std::make_shared<EncodedExamples>(*tokenizer_, columns_of_example(task_), sequence_length_);
  TaskSet set;
  visit_files(files, set, [&](const ExampleFile& file) { add_labelled_examples(task_, file, *encoder, *examples); });
  examples->shrink();
  set.bytes = examples->bytes();
  set.summary = fmt::format("{}{}", counted(static_cast<std::int64_t>(examples->size()), "example"),
                            examples->truncated() == 0
                                ? ""
                                : fmt::format(", {} of them cut to model.sequence_length", examples->truncated()));
  const auto order = training ? LabelledSamples::Order::shuffled : LabelledSamples::Order::sequential;
  set.samples = std::make_unique<LabelledSamples>(examples, order, seed_);
  return set;
}

TaskSet TaskData::read_instructions(const char* key, const Blend& files, bool training) const {
  const auto examples = std::make_shared<EncodedInstructions>(*tokenizer_, sequence_length_);
  TaskSet set;
  visit_files(files, set, [&](const ExampleFile& file) {
    megatron::read_instructions(file, chat_template_of(task_),
                                [&](const Instruction& instruction) { examples->add(instruction); });
  });
  examples->pack(files.parts.size() == 1 ? files.parts[0].path : key);
  const auto order = training ? InstructionSamples::Order::shuffled : InstructionSamples::Order::sequential;
  set.samples = std::make_unique<InstructionSamples>(examples, order, seed_);
  set.bytes = examples->bytes();
  set.summary = fmt::format(
      "{} in {}, {:.1f} % of their rows filled", counted(static_cast<std::int64_t>(examples->examples()), "example"),
      counted(static_cast<std::int64_t>(examples->samples()), "sample"), 100 * examples->filled());
  if (examples->left_out() > 0) {
    set.notes.push_back(
        fmt::format("{}: {} of {} examples are longer than model.sequence_length, or have nothing to learn, and "
                    "are left out",
                    key, examples->left_out(), examples->left_out() + examples->examples()));
  }
  if (training) {
    const std::vector<std::string> foreign = foreign_special_tokens(chat_template_of(task_), *tokenizer_);
    set.notes.insert(set.notes.end(), foreign.begin(), foreign.end());
  }
  return set;
}

std::size_t TaskData::bytes() const {
  return train_.bytes + (validation_ ? validation_->bytes : 0) + (test_ ? test_->bytes : 0);
}

std::string TaskData::fingerprint() const {
  std::string text = fmt::format("{:016x} {:016x} ", vocabulary_.hash, train_.hash);
  for (const auto* set : {&validation_, &test_}) {
    if (*set) text += fmt::format("{:016x} ", (*set)->hash);
  }
  return text;
}

}  // namespace megatron
