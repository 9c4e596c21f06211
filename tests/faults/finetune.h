// Fixture of the fine-tuning tests: a pretrained BERT, and examples whose label says which of two words is in one of
// their texts. Made at the first call of fixture(); gone when the program ends.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "faults/runs.h"
#include "support/temporary_folder.h"

/// Input file of the pretrained model, without data: 2 layers, hidden 32, batch 8, dropout.
extern const char* const kFineTunedModel;

struct Fixture {
  TemporaryFolder folder;
  std::string pretrained = folder.file("pretrained");

  Fixture();
  /// With a separate vocabulary, NAME_words/vocab.txt, and more options of megatron_preprocess.
  std::string pretrain(const std::string& name, const char* vocabulary_size, const Command& more = {}) const;
  std::string file(const std::string& name) const { return folder.file(name); }

  static std::string filler(int i);
  /// Half of them with a second text, which has the word.
  static std::string pairs(int first, int count);
  static std::string questions(int first, int count);

  Command run(const Settings& settings, const Layout& layout, const std::string& directory) const;
  /// Settings to classify 61 examples, with 21 for validation.
  Settings classification(const Settings& more = {}) const;
  Settings multiple_choice(const Settings& more = {}) const;
  static Settings with(const Settings& last, Settings settings);
};

const Fixture& fixture();

/// The lines of metrics.jsonl about evaluations.
std::vector<nlohmann::json> evaluations(const std::string& directory);
