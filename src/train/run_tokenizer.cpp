#include "train/run_tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "data/shard_set.h"
#include "hdf5/durable_file.h"

namespace megatron {

namespace {

namespace fs = std::filesystem;

/// Whether the folder has good files of this vocabulary.
bool has_tokenizer(const std::string& folder, const Vocabulary& vocabulary) {
  const std::vector<TokenizerChoice> kept = kept_tokenizers(vocabulary.tokenizer, folder + "/");
  if (kept.empty()) return false;
  try {
    return make_tokenizer(kept.front())->hash() == vocabulary.hash;
  } catch (const Error&) {
    return false;  // a copy that was cut short; it is made again
  }
}

}  // namespace

void keep_tokenizer(const std::string& run_directory, const std::vector<std::unique_ptr<TokenDataset>>& sets,
                    Log& log) {
  const Vocabulary& vocabulary = sets.front()->vocabulary();
  if (!tokenizer_has_files(vocabulary.tokenizer)) return;
  const std::string folder = run_directory + "/tokenizer";
  if (has_tokenizer(folder, vocabulary)) return;
  const std::vector<VocabularyFile> files = vocabulary_files_of(sets);
  if (files.empty()) {
    log.warning(
        "{0}{1} and {0}{2} (or {0}{3}) are not there, nor beside any other shards: training needs only the shards, but "
        "megatron_generate will have to be given --vocab-file and --merge-file",
        vocabulary_path(sets.front()->prefix(), ""), kVocabFile, kMergeFile, kTokenizerFile);
    return;
  }
  std::error_code error;
  fs::create_directories(folder, error);
  verify(!error, ErrorKind::filesystem, "{}: cannot make this folder: {}", folder, error.message());
  Publication copies;
  for (const VocabularyFile& file : files) copies.write(folder + "/" + file.name, file.contents);
  copies.publish();
  copies.commit();
  for (const char* name : kTokenizerFiles) {  // older ones of the other kind
    const auto is_this = [&](const VocabularyFile& file) { return file.name == name; };
    if (std::none_of(files.begin(), files.end(), is_this)) remove_quietly(folder + "/" + name);
  }
}

std::unique_ptr<Tokenizer> tokenizer_of_checkpoint(const std::string& checkpoint_path, const std::string& name,
                                                   std::uint64_t hash, const std::string& vocab_file,
                                                   const std::string& merge_file) {
  TokenizerChoice choice{name, vocab_file, merge_file};
  if (tokenizer_has_files(name) && vocab_file.empty() && merge_file.empty()) {
    fs::path step = fs::absolute(checkpoint_path).lexically_normal();
    if (!step.has_filename()) step = step.parent_path();  // it ended with a slash
    const std::string folder = (step.parent_path().parent_path() / "tokenizer").string() + "/";
    const std::vector<TokenizerChoice> kept = kept_tokenizers(name, folder);
    verify(
        !kept.empty(), ErrorKind::data,
        "{0}{1} and {0}{2} (or {0}{3}) are not there, and {4} was trained with a vocabulary; give the files that its "
        "text was preprocessed with as --vocab-file and --merge-file",
        folder, kVocabFile, kMergeFile, kTokenizerFile, checkpoint_path);
    choice = kept.front();
  }
  std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(choice);
  verify(tokenizer->hash() == hash, ErrorKind::checkpoint,
         "{} was trained with another '{}' vocabulary (hash {:016x}) than {} (hash {:016x}); give the right one as "
         "--vocab-file and --merge-file",
         checkpoint_path, name, hash, choice.vocab_file.empty() ? "this program has" : choice.vocab_file,
         tokenizer->hash());
  return tokenizer;
}

}  // namespace megatron
