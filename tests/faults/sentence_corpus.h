// A folder with a WordPiece vocabulary of the shared corpus and an input file, for the tests of models that read
// sentences. Shards are made as a test asks for them.
#pragma once

#include <string>

#include "faults/runs.h"
#include "support/temporary_folder.h"

struct SentenceCorpus {
  TemporaryFolder folder;

  /// `input` becomes input.toml; its @DATA@ stands for the folder.
  explicit SentenceCorpus(std::string input);

  std::string path(const std::string& name) const { return folder.file(name); }
  /// Options of megatron_preprocess.
  Command pieces() const { return {"--tokenizer", "bert-uncased", "--vocab-file", path("words/vocab.txt")}; }
  /// Shards of the shared corpus, or of `text`.
  void make(const std::string& prefix, Command options, const std::string& text = "") const;
};

/// Options, and more of them.
inline Command extended(Command options, const Command& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}
