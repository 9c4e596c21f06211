// Megatron-LM's indexed data sets: PREFIX.idx, which says where each sequence of tokens is, and PREFIX.bin, the tokens.
//
// Two formats of the index, little-endian:
//
//   mmap      "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences n, u64 entries of the document index D;
//             i32 lengths [n], i64 offsets in PREFIX.bin [n] (bytes), i64 document index [D]
//   TNTIDX    (the cached and lazy formats) "TNTIDX\0\0", u64 version 1, u64 type, u64 bytes of an element, u64
//             sequences n, u64 lengths m, u64 D; i64 where each sequence's lengths begin [n + 1], i64 where its
//             elements begin [n + 1], i64 lengths [m], i64 document index [D]
//
// The document index holds the first sequence of each document and, last, n. Types of tokens: 1 uint8, 2 int8, 3 int16,
// 4 int32, 5 int64, 8 uint16.
//
// What is read is checked before memory is taken for it: sizes against the size of the file, sums without overflow,
// places of sequences (end to end, as every writer lays them), the length of PREFIX.bin, ids. Everything is 64-bit.
// Errors of reading are ErrorKind::data and name the file. Memory: four bytes a sequence, and eight a document unless
// each sequence is one.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/input_text.h"
#include "hdf5/durable_file.h"

namespace megatron {

enum class IndexedType : std::uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, u16 = 8 };

std::uint64_t bytes_of(IndexedType type);
std::string_view name_of(IndexedType type);  ///< numpy's
/// ErrorKind::configuration if there is no such type.
IndexedType indexed_type(std::string_view name);
/// What Megatron's preprocessing takes for a vocabulary of this size.
IndexedType indexed_type_for(std::uint64_t vocab_size);

class IndexedReader {
 public:
  explicit IndexedReader(const std::string& prefix);

  IndexedType type() const { return type_; }
  std::uint64_t sequences() const { return lengths_.size(); }
  std::uint64_t tokens() const { return tokens_; }
  const std::vector<std::uint32_t>& lengths() const { return lengths_; }
  /// The first sequence of each document, and sequences(); empty if each sequence is a document.
  const std::vector<std::uint64_t>& documents() const { return documents_; }
  /// What is wrong with the document index, of which documents() then says nothing; else empty.
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

/// Writes a set in the mmap format, each sequence a document. Both files have temporary names until finish(), and are
/// removed if it is not reached or fails: then older ones are what they were. Memory: four bytes a document. Errors of
/// writing are ErrorKind::filesystem.
class IndexedWriter {
 public:
  IndexedWriter(const std::string& prefix, IndexedType type);
  IndexedWriter(const IndexedWriter&) = delete;
  IndexedWriter& operator=(const IndexedWriter&) = delete;
  ~IndexedWriter();

  /// ErrorKind::data for an id that the type does not hold.
  void add_document(std::span<const std::int32_t> tokens);
  void finish();

  std::uint64_t documents() const { return lengths_.size(); }
  std::uint64_t tokens() const { return tokens_; }

 private:
  void flush_if(std::FILE* file, const std::string& path, std::size_t bytes);
  void write_index();

  std::string bin_path_, index_path_;
  Publication publication_;
  IndexedType type_;
  std::FILE* bin_ = nullptr;
  std::FILE* index_ = nullptr;
  std::string buffer_;
  std::vector<std::uint32_t> lengths_;
  std::uint64_t tokens_ = 0;
};

}  // namespace megatron
