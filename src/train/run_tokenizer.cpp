#include "train/run_tokenizer.h"

#include <filesystem>

#include "base/error.h"
#include "hdf5/durable_file.h"

namespace megatron {

namespace {

namespace fs = std::filesystem;

/// The files of a choice, for messages.
std::string named(const TokenizerChoice& choice) {
  return choice.merge_file.empty() ? choice.vocab_file : choice.vocab_file + " and " + choice.merge_file;
}

/// Whether the run directory has good files of this vocabulary.
bool is_kept(const std::optional<TokenizerChoice>& kept, std::uint64_t hash) {
  if (!kept) return false;
  try {
    return make_tokenizer(*kept)->hash() == hash;
  } catch (const Error&) {
    return false;  // a copy that was cut short; it is made again
  }
}

}  // namespace

void keep_tokenizer(const std::string& run_directory, const TokenDataset& data, Log& log) {
  const Vocabulary& vocabulary = data.vocabulary();
  if (!tokenizer_has_files(vocabulary.tokenizer)) return;
  const std::string folder = run_directory + "/tokenizer";
  if (is_kept(kept_tokenizer(vocabulary.tokenizer, folder + "/"), vocabulary.hash)) return;
  const std::string beside_shards = vocabulary_path(data.prefix(), "");
  const std::optional<TokenizerChoice> beside = kept_tokenizer(vocabulary.tokenizer, beside_shards);
  if (!beside) {
    log.warning(
        "{0}{1} and {0}{2} (or {0}{3}) are not there: training needs only the shards, but megatron_generate will have "
        "to "
        "be given --vocab-file and --merge-file",
        beside_shards, kVocabFile, kMergeFile, kTokenizerFile);
    return;
  }
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(*beside);
  verify(tokenizer->hash() == vocabulary.hash, ErrorKind::data,
         "{}: another vocabulary than the shards beside it were made with; put the right one there, or remove this",
         named(*beside));
  std::error_code error;
  fs::create_directories(folder, error);
  verify(!error, ErrorKind::filesystem, "{}: cannot make this folder: {}", folder, error.message());
  for (const char* file : kTokenizerFiles) remove_quietly(folder + "/" + file);  // perhaps of the other kind
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
    const std::string folder = (step.parent_path().parent_path() / "tokenizer").string() + "/";
    const std::optional<TokenizerChoice> kept = kept_tokenizer(name, folder);
    verify(
        kept.has_value(), ErrorKind::data,
        "{0}{1} and {0}{2} (or {0}{3}) are not there, and {4} was trained with a vocabulary; give the files that its "
        "text was preprocessed with as --vocab-file and --merge-file",
        folder, kVocabFile, kMergeFile, kTokenizerFile, checkpoint_path);
    choice = *kept;
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
