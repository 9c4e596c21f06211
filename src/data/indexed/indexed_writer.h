// IndexedWriter: one of Megatron-LM's indexed data sets in the mmap format. A document is one sequence, or several, its
// sentences.
//
// Both files have temporary names until finish(), and are removed if it is not reached or fails: then older ones are
// what they were. Memory: four bytes per sequence, eight per document. Errors of writing are ErrorKind::filesystem.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/system/durable_file.h"
#include "base/system/file_lock.h"
#include "data/indexed/indexed_format.h"

namespace megatron {

class IndexedWriter {
 public:
  /// Makes the folder that files of this prefix go to. ErrorKind::configuration if it is no prefix of file names.
  IndexedWriter(const std::string& prefix, IndexedType type);
  IndexedWriter(const IndexedWriter&) = delete;
  IndexedWriter& operator=(const IndexedWriter&) = delete;
  ~IndexedWriter();

  /// ErrorKind::data for an id that the type does not hold.
  void add_document(std::span<const std::int32_t> tokens);
  /// `sequences`: their lengths, which are all of it.
  void add_document(std::span<const std::int32_t> tokens, std::span<const std::uint64_t> sequences);
  /// ErrorKind::configuration if files of other contents lie there that are not to be overwritten.
  void finish(bool overwrite);

  std::uint64_t documents() const { return ends_.size(); }
  std::uint64_t sequences() const { return lengths_.size(); }
  std::uint64_t tokens() const { return tokens_; }

 private:
  void flush_if(std::FILE* file, const std::string& path, std::size_t bytes);
  void write_index();

  std::optional<TargetLock> lock_;
  std::string bin_path_, index_path_, bin_temporary_, index_temporary_;
  Publication publication_;
  IndexedType type_;
  std::FILE* bin_ = nullptr;
  std::FILE* index_ = nullptr;
  std::string buffer_;
  std::vector<std::uint32_t> lengths_;  // the sequences'
  std::vector<std::uint64_t> ends_;     // the documents', in sequences
  std::uint64_t tokens_ = 0;
};

}  // namespace megatron
