#include "faults/sentence_corpus.h"

#include "faults/checks.h"
#include "support/needs_icu.h"

namespace {

std::string shared_text() {
  return (shared_folder() / "corpus.jsonl").string();
}

}  // namespace

SentenceCorpus::SentenceCorpus(std::string input) {
  needs_icu();
  expect({preprocess_program(), "train-tokenizer", "--type", "wordpiece", "--input", shared_text(), "--output",
          path("words"), "--vocab-size", "300"},
         0);
  input.replace(input.find("@DATA@"), 6, folder.path());
  write_file(path("input.toml"), input);
}

void SentenceCorpus::make(const std::string& prefix, Command options, const std::string& text) const {
  expect(extended({preprocess_program(), "--input", text.empty() ? shared_text() : text, "--output", path(prefix)},
                  options),
         0);
}
