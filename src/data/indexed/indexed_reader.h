// IndexedReader: the sequences and documents of one of Megatron-LM's indexed data sets.
//
// What is read is checked before memory is taken for it: sizes against the size of the file, sums without overflow,
// places of sequences (end to end, as every writer lays them), the length of PREFIX.bin, ids. Everything is 64-bit.
// Errors are ErrorKind::data and name the file. Memory: four bytes per sequence, and eight per document unless each
// sequence is one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/indexed/indexed_format.h"
#include "data/preprocess/input_text.h"

namespace megatron {

class IndexedReader {
 public:
  explicit IndexedReader(const std::string& prefix);

  IndexedType type() const { return type_; }
  std::uint64_t sequences() const { return lengths_.size(); }
  std::uint64_t tokens() const { return tokens_; }
  const std::vector<std::uint32_t>& lengths() const { return lengths_; }
  /// The first sequence of each document, and sequences(); empty if each sequence is a document.
  const std::vector<std::uint64_t>& documents() const { return documents_; }
  /// Problem of the document index, about which documents() then says nothing; empty if there is none.
  const std::string& document_problem() const { return document_problem_; }

  /// Ids of the tokens [first, first + count), which must exist. One below 0 or beyond 2^31 - 1 is an error.
  void read(std::uint64_t first, std::uint64_t count, std::int32_t* ids);

 private:
  class Fields;
  void read_mmap(Fields& fields);
  void read_tntidx(Fields& fields);
  void read_documents(Fields& fields, std::uint64_t count);
  void add_length(std::int64_t length);

  std::string index_path_;
  InputFile tokens_file_;
  IndexedType type_ = IndexedType::u16;
  std::uint64_t tokens_ = 0;
  std::vector<std::uint32_t> lengths_;
  std::vector<std::uint64_t> documents_;
  std::string document_problem_;
  std::string staging_;
};

}  // namespace megatron
