// UnigramVocabulary: Hugging Face's tokenizer.json with a model of type Unigram, as T5's and XLM-R's are, checked
// before anything uses it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/folder_settings.h"
#include "data/tokenizer/text_normalizer.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

/// Where a space is put in front of a text.
enum class PrefixSpace { always, first, never };

struct UnigramVocabulary {
  std::vector<std::string> tokens;  ///< by id: the model's pieces, then added tokens that are none of them
  std::vector<double> scores;       ///< by piece of the model
  SpecialIds special;               ///< eos and unk are there
  std::vector<AddedToken> added;
  bool byte_fallback = false;
  std::vector<NormalizerStep> normalizer;
  bool split_at_spaces = true;  ///< words are looked at one by one; else a text as a whole
  bool drop_spaces = true;      ///< WhitespaceSplit: runs of white space separate words, and are nothing else
  PrefixSpace prefix = PrefixSpace::always;
  std::string text;  ///< tokenizer.json
};

/// Reads these parts of the file:
///
///   model            vocab [["piece", log probability], ...], whose places are the ids; unk_id; byte_fallback
///   normalizer       NFC, NFD, NFKC, NFKD, Lowercase, Precompiled, Replace of runs of spaces, Strip, or a Sequence of
///                    these, or none
///   pre_tokenizer    Metaspace, or a Sequence of WhitespaceSplit and Metaspace
///   added_tokens     special: found in a text only where this is asked for, and no pieces of other texts
///   decoder          Metaspace, also with ByteFallback
///   post_processor   special tokens around a text; never added here
///
/// There must be a special token that ends documents: </s>, <eos> or [EOS]. Anything else that a file asks for is
/// refused by name. Errors are ErrorKind::data and name file and line.
UnigramVocabulary read_unigram_json(const std::string& path, std::int64_t extra_ids, std::int64_t rows = 0,
                                    const FolderSettings& folder = {});

/// tokenizer.json of pieces and their log probabilities, after <pad> </s> <unk> as T5 has them, and with `extra_ids`
/// sentinels: NFC, WhitespaceSplit and Metaspace.
std::string write_unigram_json(const std::vector<std::pair<std::string, double>>& pieces, std::int64_t extra_ids);

}  // namespace megatron
