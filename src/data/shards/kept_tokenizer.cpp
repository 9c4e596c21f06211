#include "data/shards/kept_tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "base/system/errno_text.h"
#include "data/shards/shard_set.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"

namespace megatron {

namespace fs = std::filesystem;

namespace {

std::string kept_folder(const std::string& run_directory) {
  return run_directory + "/tokenizer";
}

bool is_kept(const std::string& run_directory, const std::string& name, std::uint64_t hash) {
  return find_kept_tokenizer(name, hash, kept_folder(run_directory) + "/").tokenizer != nullptr;
}

void keep_files(const std::string& folder, const std::vector<TokenizerFile>& files) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorKind::filesystem, "{}: cannot make this folder: {}", folder, errno_text(error.value()));
  Publication copies;
  std::vector<std::string> names;
  for (const TokenizerFile& file : files) {
    names.push_back(folder + "/" + file.name);
    copies.write(names.back(), file.contents);
  }
  copies.publish();
  copies.commit();
  remove_temporaries(names);
  for (const char* name : kTokenizerFiles) {  // older ones of the other kind
    const auto is_this = [&](const TokenizerFile& file) { return file.name == name; };
    if (std::none_of(files.begin(), files.end(), is_this)) remove_quietly(folder + "/" + name);
  }
}

}  // namespace

void keep_tokenizer(const std::string& run_directory, const Tokenizer& tokenizer) {
  if (!tokenizer_has_files(tokenizer.name()) || is_kept(run_directory, tokenizer.name(), tokenizer.hash())) return;
  keep_files(kept_folder(run_directory), tokenizer.files());
}

void keep_tokenizer(const std::string& run_directory, const std::vector<std::unique_ptr<TokenDataset>>& sets,
                    Log& log) {
  const Vocabulary& vocabulary = sets.front()->vocabulary();
  if (!tokenizer_has_files(vocabulary.tokenizer) || is_kept(run_directory, vocabulary.tokenizer, vocabulary.hash)) {
    return;
  }
  const std::vector<VocabularyFile> files = vocabulary_files_of(sets);
  if (files.empty()) {
    log.warning(
        "{} is not next to the shards: training needs only these, but megatron_generate will have to be given "
        "--vocab-file",
        kept_file_names(vocabulary.tokenizer, vocabulary_path(sets.front()->prefix(), "")));
    return;
  }
  std::vector<TokenizerFile> contents;
  for (const VocabularyFile& file : files) contents.push_back({file.name, file.contents});
  keep_files(kept_folder(run_directory), contents);
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

namespace {

/// Where a checkpoint's tokenizer may have been kept: by an import in its own folder, by training in its run's.
struct KeptFolders {
  explicit KeptFolders(const std::string& checkpoint_path) {
    fs::path path = fs::absolute(checkpoint_path).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();  // it ended with a slash
    step = path.string() + "/";
    run = kept_folder((path.parent_path().parent_path()).string()) + "/";
    in_run = path.parent_path().filename() == "checkpoints";
  }
  std::string step, run;
  bool in_run = false;
};

/// Advice for the case that the files that are named are not those of the checkpoint.
std::string advice_on_files(const std::string& checkpoint_path, const std::string& name, std::uint64_t hash) {
  if (!tokenizer_has_files(name)) return "another version of this program made it";
  const KeptFolders folders(checkpoint_path);
  for (const std::string& folder : {folders.step, folders.run}) {
    if (find_kept_tokenizer(name, hash, folder).tokenizer == nullptr) continue;
    return fmt::format("leave --vocab-file out: {} has the right one", folder);
  }
  if (name == "gpt2") return "give the right one as --vocab-file and --merge-file";
  return fmt::format(
      "give the right one as --vocab-file; if its shards were made with --extra-ids, that is the copy next to them, {}",
      kept_file_names(name, "PREFIX."));
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of_checkpoint(const std::string& checkpoint_path, const std::string& name,
                                                   std::uint64_t hash, const std::string& vocab_file,
                                                   const std::string& merge_file) {
  verify(
      name != kUnknownTokenizer, ErrorKind::configuration,
      "{} was imported without a tokenizer; give the model's own files as --vocab-file (a tokenizer.json, vocab.json "
      "with merges.txt, vocab.txt or tokenizer.model; for fine-tuning task.tokenizer and task.vocab_file), or import "
      "it again with them (megatron_checkpoint import ... --vocab-file FILE)",
      checkpoint_path);
  if (tokenizer_has_files(name) && vocab_file.empty() && merge_file.empty()) {
    const KeptFolders folders(checkpoint_path);
    KeptTokenizer imported = find_kept_tokenizer(name, hash, folders.step);
    if (imported.tokenizer != nullptr) return std::move(imported.tokenizer);
    KeptTokenizer kept = find_kept_tokenizer(name, hash, folders.run);
    if (kept.others.empty()) kept.others = imported.others;
    verify(
        kept.tokenizer != nullptr || !kept.others.empty(), ErrorKind::data,
        "{} is not there, and {} was trained with a vocabulary; give the files that its text was preprocessed with as "
        "--vocab-file{}",
        kept_file_names(name, folders.in_run ? folders.run : folders.step), checkpoint_path,
        name == "gpt2" ? " and --merge-file" : "");
    verify(kept.tokenizer != nullptr, ErrorKind::checkpoint,
           "{} was trained with the '{}' vocabulary of hash {:016x}, but {}; give the right one as --vocab-file and "
           "--merge-file",
           checkpoint_path, name, hash, kept.others);
    return std::move(kept.tokenizer);
  }
  std::unique_ptr<Tokenizer> tokenizer = make_tokenizer({name, vocab_file, merge_file});
  if (tokenizer->hash() == hash) return tokenizer;
  fail(ErrorKind::checkpoint, "{} was trained with another '{}' vocabulary (hash {:016x}) than {} (hash {:016x}); {}",
       checkpoint_path, name, hash, vocab_file.empty() ? "this program has" : vocab_file, tokenizer->hash(),
       advice_on_files(checkpoint_path, name, hash));
}

}  // namespace megatron
