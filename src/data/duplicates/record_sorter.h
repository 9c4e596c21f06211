// RecordSorter: any number of records in ascending order, in bounded memory, by way of sorted scratch files.
//
// Records are a few words that are compared in their order; the last one is a document's number. A record takes
// 8 · Words bytes of memory or disk; while more than some hundred files are merged to fewer, up to twice that of disk.
// Files are removed when they have been read, or by the destructor. Errors: data/duplicates/signature_file.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/duplicates/signature_file.h"

namespace megatron {

/// Least memory of a RecordSorter.
inline constexpr std::size_t kLeastSorterBytes = 32768;

template <std::size_t Words>
class RecordSorter {
 public:
  using Record = std::array<std::uint64_t, Words>;

  /// Files are PATH-0, PATH-1, ..., names that no other process may use. It takes at most `memory_bytes`, at least
  /// kLeastSorterBytes, of which it has nothing before the first record.
  RecordSorter(std::string path, std::size_t memory_bytes);
  RecordSorter(const RecordSorter&) = delete;
  RecordSorter& operator=(const RecordSorter&) = delete;
  ~RecordSorter();

  void add(const Record& record);
  /// All records have been added: next() tells them.
  void sort();
  /// The next record, equal ones one after the other; false at the end, after which it holds no memory.
  bool next(Record& record);

  std::uint64_t records() const { return records_; }  ///< added so far
  std::uint64_t files() const { return made_; }       ///< written so far

 private:
  struct Run {
    Record first;  // the next record of its file
    std::size_t number;
    std::unique_ptr<SignatureFileReader> file;
  };

  std::string file_name(std::size_t number) const;
  void spill();
  void open(std::size_t count);  // the oldest files, to be merged
  bool next_of_runs(Record& record);
  void remove_merged();

  std::string path_;
  std::size_t capacity_, block_bytes_, most_runs_;
  std::uint64_t records_ = 0;
  std::vector<Record> buffer_;
  std::size_t at_ = 0;                            // in the buffer, where nothing was spilled
  std::size_t made_ = 0, oldest_ = 0, read_ = 0;  // files: [oldest_, made_) are there, [oldest_, read_) being read
  std::vector<Run> runs_;                         // a heap, the least record on top
};

extern template class RecordSorter<2>;
extern template class RecordSorter<3>;

}  // namespace megatron
