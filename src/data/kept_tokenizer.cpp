#include "data/kept_tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "data/shard_set.h"
#include "system/durable_file.h"
#include "system/errno_text.h"

namespace megatron {

namespace fs = std::filesystem;

void keep_tokenizer(const std::string& run_directory, const std::vector<std::unique_ptr<TokenDataset>>& sets,
                    Log& log) {
  const Vocabulary& vocabulary = sets.front()->vocabulary();
  if (!tokenizer_has_files(vocabulary.tokenizer)) return;
  const std::string folder = run_directory + "/tokenizer";
  if (find_kept_tokenizer(vocabulary.tokenizer, vocabulary.hash, folder + "/").tokenizer != nullptr) return;
  const std::vector<VocabularyFile> files = vocabulary_files_of(sets);
  if (files.empty()) {
    log.warning(
        "{} is not next to the shards: training needs only these, but megatron_generate will have to be given "
        "--vocab-file",
        kept_file_names(vocabulary.tokenizer, vocabulary_path(sets.front()->prefix(), "")));
    return;
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorKind::filesystem, "{}: cannot make this folder: {}", folder, errno_text(error.value()));
  Publication copies;
  std::vector<std::string> names;
  for (const VocabularyFile& file : files) {
    names.push_back(folder + "/" + file.name);
    copies.write(names.back(), file.contents);
  }
  copies.publish();
  copies.commit();
  remove_temporaries(names);
  for (const char* name : kTokenizerFiles) {  // older ones of the other kind
    const auto is_this = [&](const VocabularyFile& file) { return file.name == name; };
    if (std::none_of(files.begin(), files.end(), is_this)) remove_quietly(folder + "/" + name);
  }
}

std::unique_ptr<Tokenizer> tokenizer_of_data(const std::vector<std::unique_ptr<TokenDataset>>& sets) {
  const Vocabulary& vocabulary = sets.front()->vocabulary();
  if (vocabulary.tokenizer == "byte") return make_tokenizer({});
  if (!tokenizer_has_files(vocabulary.tokenizer)) return nullptr;
  for (const auto& set : sets) {
    for (const std::string& prefix : set->prefixes()) {
      KeptTokenizer kept = find_kept_tokenizer(vocabulary.tokenizer, vocabulary.hash, vocabulary_path(prefix, ""));
      if (kept.tokenizer != nullptr) return std::move(kept.tokenizer);
    }
  }
  return nullptr;
}

std::unique_ptr<Tokenizer> tokenizer_of_checkpoint(const std::string& checkpoint_path, const std::string& name,
                                                   std::uint64_t hash, const std::string& vocab_file,
                                                   const std::string& merge_file) {
  if (tokenizer_has_files(name) && vocab_file.empty() && merge_file.empty()) {
    fs::path step = fs::absolute(checkpoint_path).lexically_normal();
    if (!step.has_filename()) step = step.parent_path();  // it ended with a slash
    KeptTokenizer imported = find_kept_tokenizer(name, hash, step.string() + "/");
    if (imported.tokenizer != nullptr) return std::move(imported.tokenizer);
    const std::string folder = (step.parent_path().parent_path() / "tokenizer").string() + "/";
    KeptTokenizer kept = find_kept_tokenizer(name, hash, folder);
    verify(
        kept.tokenizer != nullptr || !kept.others.empty(), ErrorKind::data,
        "{} is not there, and {} was trained with a vocabulary; give the files that its text was preprocessed with as "
        "--vocab-file{}",
        kept_file_names(name, folder), checkpoint_path, name == "gpt2" ? " and --merge-file" : "");
    verify(kept.tokenizer != nullptr, ErrorKind::checkpoint,
           "{} was trained with the '{}' vocabulary of hash {:016x}, but {}; give the right one as --vocab-file and "
           "--merge-file",
           checkpoint_path, name, hash, kept.others);
    return std::move(kept.tokenizer);
  }
  std::unique_ptr<Tokenizer> tokenizer = make_tokenizer({name, vocab_file, merge_file});
  verify(tokenizer->hash() == hash, ErrorKind::checkpoint,
         "{} was trained with another '{}' vocabulary (hash {:016x}) than {} (hash {:016x}); give the right one as "
         "--vocab-file and --merge-file",
         checkpoint_path, name, hash, vocab_file.empty() ? "this program has" : vocab_file, tokenizer->hash());
  return tokenizer;
}

}  // namespace megatron
