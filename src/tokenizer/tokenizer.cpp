#include "tokenizer/tokenizer.h"

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "system/errno_text.h"
#include "tokenizer/byte_tokenizer.h"
#include "tokenizer/gpt2_tokenizer.h"

namespace megatron {

bool tokenizer_has_files(std::string_view name) {
  return name == "gpt2";
}

bool tokenizer_file_exists(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::status_known(status)) {
    fail(ErrorKind::filesystem, "{}: cannot look at it: {}", path, errno_text(error.value()));
  }
  return std::filesystem::exists(status);
}

namespace {

/// FOLDER/vocab.json -> FOLDER/merges.txt, books.vocab.json -> books.merges.txt.
std::string default_merge_file(const std::string& vocab_file) {
  const std::string merge_file =
      vocab_file.substr(0, vocab_file.size() - std::string_view(kVocabFile).size()) + kMergeFile;
  verify(tokenizer_file_exists(merge_file), ErrorKind::configuration,
         "--vocab-file {} needs a file of merges, and {} does not exist; give --merge-file, or one tokenizer.json as "
         "--vocab-file",
         vocab_file, merge_file);
  return merge_file;
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerChoice& choice) {
  const bool vocab = !choice.vocab_file.empty(), merges = !choice.merge_file.empty();
  if (choice.name == "byte") {
    verify(!vocab && !merges, ErrorKind::configuration,
           "the byte tokenizer has no vocabulary: leave --vocab-file and --merge-file out, or choose --tokenizer gpt2");
    return std::make_unique<ByteTokenizer>();
  }
  if (choice.name == "gpt2") {
    verify(vocab, ErrorKind::configuration,
           "the gpt2 tokenizer needs --vocab-file: a vocab.json with its merges.txt (scripts/download_vocab.sh fetches "
           "GPT-2's, `megatron_preprocess train-tokenizer` makes others), or a tokenizer.json");
    const bool paired = !merges && choice.vocab_file.ends_with(kVocabFile);
    return std::make_unique<Gpt2Tokenizer>(choice.vocab_file,
                                           paired ? default_merge_file(choice.vocab_file) : choice.merge_file);
  }
  fail(ErrorKind::configuration, "there is no tokenizer \"{}\"; choose one of: byte gpt2", choice.name);
}

namespace {

/// The choices of files that exist after `before`.
std::vector<TokenizerChoice> kept_tokenizers(const std::string& name, const std::string& before) {
  std::vector<TokenizerChoice> choices;
  if (tokenizer_file_exists(before + kTokenizerFile)) choices.push_back({name, before + kTokenizerFile, ""});
  if (tokenizer_file_exists(before + kVocabFile) && tokenizer_file_exists(before + kMergeFile)) {
    choices.push_back({name, before + kVocabFile, before + kMergeFile});
  }
  return choices;
}

}  // namespace

KeptTokenizer find_kept_tokenizer(const std::string& name, std::uint64_t hash, const std::string& before) {
  KeptTokenizer kept;
  for (const TokenizerChoice& choice : kept_tokenizers(name, before)) {
    std::string why;
    try {
      std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(choice);
      if (tokenizer->hash() == hash) return {std::move(tokenizer), ""};
      why = fmt::format("{}{}{}: another vocabulary (hash {:016x})", choice.vocab_file,
                        choice.merge_file.empty() ? "" : " and ", choice.merge_file, tokenizer->hash());
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::filesystem) throw;  // it may be the right one
      why = error.what();
    }
    kept.others += (kept.others.empty() ? "" : "; ") + why;
  }
  return kept;
}

}  // namespace megatron
