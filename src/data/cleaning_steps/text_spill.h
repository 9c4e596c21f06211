// TextSpill: the texts of all ranks' documents in scratch files, to be read again by number from any rank, checked by
// their hashes. They take their size and 24 bytes each of disk, in a folder that all ranks see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/regular_file.h"

namespace megatron {

class TextSpill {
 public:
  /// `folders`: an existing one of each rank, by rank.
  TextSpill(std::vector<std::string> folders, std::size_t rank);

  /// Adds a round's texts of this rank; text i ends at ends[i]. ErrorKind::filesystem.
  void add_round(std::string_view texts, std::span<const std::size_t> ends);
  /// Tells what the last round had, by rank: documents are numbered in the order of rounds and ranks.
  void count_round(std::span<const double> documents);
  /// The text of a document of any rank, after the last round on all of them. ErrorKind::filesystem where the files are
  /// not there or not what was written.
  std::string fetch(std::uint64_t document);

 private:
  struct Place {
    std::uint64_t begin, bytes, hash;
  };
  struct Files {
    RegularFile places, texts;
  };
  /// A round of a rank.
  struct Share {
    std::uint64_t first, first_of_rank;  // its first document's number, and that among the rank's
  };
  const Files& files_of(std::size_t rank);

  std::vector<std::string> folders_;
  std::size_t rank_;
  std::uint64_t written_ = 0, documents_ = 0;
  std::vector<std::uint64_t> of_rank_;  // documents so far
  std::vector<Share> shares_;           // by round and rank
  std::map<std::size_t, std::unique_ptr<Files>> open_;
};

}  // namespace megatron
