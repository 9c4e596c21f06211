// Between Megatron-LM's indexed data sets and token shards, and several sets of shards into one. Each for one process;
// what is written appears whole or not at all. Errors of what is read are ErrorKind::data.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/indexed/indexed_format.h"
#include "data/shards/shard_set.h"

namespace megatron {

/// Decides what becomes a document of the shards.
enum class ImportedDocuments {
  exact,      ///< each sequence; refused if Megatron's documents are anything else
  joined,     ///< each of Megatron's documents, its sequences (sentences) one after the other
  sentences,  ///< the same, and the shards know where the sequences begin
  sequences   ///< each sequence, whatever Megatron's documents are
};

struct ImportJob {
  std::string source, target;  ///< prefixes; the source's may end with .idx or .bin
  Vocabulary vocabulary;
  std::vector<VocabularyFile> files;
  ImportedDocuments documents = ImportedDocuments::exact;
  bool skip_empty = false;  ///< leave documents without tokens out; else they are an error, for shards have none
  std::uint64_t shard_bytes = std::uint64_t{256} << 20;  ///< size of PREFIX.bin
  bool overwrite = false;                                ///< replace another set that has the target's prefix
};

struct ConversionSummary {
  std::uint64_t documents = 0, tokens = 0, shards = 0, empty = 0;
  IndexedType type = IndexedType::u16;
};

ConversionSummary import_indexed(const ImportJob& job);
/// `source` is a path as data.train takes it. Without a type: indexed_type_for.
ConversionSummary export_indexed(const std::string& source, const std::string& target, std::optional<IndexedType> type,
                                 bool overwrite = false);
/// Documents in the order of the sources, which are paths as data.train takes them, of one tokenizer, and all with the
/// end-of-document token at the end of documents or all without.
ConversionSummary merge_sets(const std::vector<std::string>& sources, const std::string& target,
                             std::uint64_t shard_bytes, bool overwrite = false);

}  // namespace megatron
