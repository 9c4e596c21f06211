#include "train/run_tokenizer.h"

#include <filesystem>

#include "base/error.h"
#include "hdf5/durable_file.h"

namespace megatron {

namespace {

namespace fs = std::filesystem;

bool all_there(const TokenizerChoice& choice) {
  std::error_code ignored;
  return fs::exists(choice.vocab_file, ignored) && fs::exists(choice.merge_file, ignored);
}

TokenizerChoice files_in(const std::string& folder, const std::string& name) {
  return {name, folder + "/" + kVocabFile, folder + "/" + kMergeFile};
}

/// Whether the run directory has good files of this vocabulary.
bool is_kept(const TokenizerChoice& kept, std::uint64_t hash) {
  if (!all_there(kept)) return false;
  try {
    return make_tokenizer(kept)->hash() == hash;
  } catch (const Error&) {
    return false;  // a copy that was cut short; it is made again
  }
}

}  // namespace

void keep_tokenizer(const std::string& run_directory, const TokenDataset& data, Log& log) {
  const Vocabulary& vocabulary = data.vocabulary();
  if (!tokenizer_has_files(vocabulary.tokenizer)) return;
  const std::string folder = run_directory + "/tokenizer";
  if (is_kept(files_in(folder, vocabulary.tokenizer), vocabulary.hash)) return;
  const TokenizerChoice beside{vocabulary.tokenizer, vocabulary_path(data.prefix(), kVocabFile),
                               vocabulary_path(data.prefix(), kMergeFile)};
  if (!all_there(beside)) {
    log.warning(
        "{} and {} are not there: training needs only the shards, but megatron_generate will have to be given "
        "--vocab-file and --merge-file",
        beside.vocab_file, beside.merge_file);
    return;
  }
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(beside);
  verify(tokenizer->hash() == vocabulary.hash, ErrorKind::data,
         "{} and {} are another vocabulary than the shards beside them were made with; put the right files there, or "
         "remove these",
         beside.vocab_file, beside.merge_file);
  std::error_code error;
  fs::create_directories(folder, error);
  verify(!error, ErrorKind::filesystem, "{}: cannot make this folder: {}", folder, error.message());
  for (const TokenizerFile& file : tokenizer->files()) {
    const std::string path = folder + "/" + file.name;
    write_durably(path + ".tmp", file.contents);
    rename_durably(path + ".tmp", path);
  }
}

std::unique_ptr<Tokenizer> tokenizer_of_checkpoint(const std::string& checkpoint_path, const std::string& name,
                                                   std::uint64_t hash, const std::string& vocab_file,
                                                   const std::string& merge_file) {
  TokenizerChoice choice{name, vocab_file, merge_file};
  if (tokenizer_has_files(name) && vocab_file.empty() && merge_file.empty()) {
    fs::path step = fs::absolute(checkpoint_path).lexically_normal();
    if (!step.has_filename()) step = step.parent_path();  // it ended with a slash
    choice = files_in((step.parent_path().parent_path() / "tokenizer").string(), name);
    verify(all_there(choice), ErrorKind::data,
           "{} and {} are not there, and {} was trained with a vocabulary; give the files that its text was "
           "preprocessed with as --vocab-file and --merge-file",
           choice.vocab_file, choice.merge_file, checkpoint_path);
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
