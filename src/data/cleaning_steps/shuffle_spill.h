// ShuffleSpill: lines in the order of their keys, in bounded memory. A bucket has a range of keys; each rank keeps the
// buckets that are its own in scratch files, which are checked by their hash when they are read again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/cleaning_steps/scratch_folder.h"
#include "distributed/comm/communicator.h"

struct XXH3_state_s;

namespace megatron {

/// About this much text is in a bucket; a rank holds one at a time, and as much again of what waits to be written.
inline constexpr std::uint64_t kBucketBytes = std::uint64_t{64} << 20;

class ShuffleSpill {
 public:
  /// Scratch files are made in `folder`/shuffle-RANK, which no one else uses, and removed with this object. `bytes`: of
  /// all lines of all ranks, about. Errors are ErrorKind::filesystem.
  ShuffleSpill(Communicator& world, const std::string& folder, std::uint64_t bytes,
               std::uint64_t bucket_bytes = kBucketBytes);
  ShuffleSpill(const ShuffleSpill&) = delete;
  ShuffleSpill& operator=(const ShuffleSpill&) = delete;
  ~ShuffleSpill();

  /// Adds a line of this rank to the round. `number` is the line's own among all.
  void add(std::uint64_t key, std::uint64_t number, std::string_view line);
  /// Hands the round's lines to the ranks of their buckets. Collective.
  void end_round();

  std::uint64_t buckets() const { return buckets_.size(); }
  /// The lines of a bucket, by key and number, in one text. `bucket` modulo the number of ranks is this rank.
  /// ErrorKind::filesystem where a scratch file is not what was written.
  std::string take(std::uint64_t bucket, std::uint64_t& lines);

 private:
  struct Bucket {
    std::string waiting;
    std::uint64_t bytes = 0;  // in the file
    XXH3_state_s* hash = nullptr;
  };
  std::string path_of(std::uint64_t bucket) const;
  void append(std::string_view entries);
  void flush(std::uint64_t bucket);
  void flush_all();

  Communicator& world_;
  ScratchFolder folder_;
  std::vector<Bucket> buckets_;
  std::vector<std::string> round_;  // by rank
  std::uint64_t waiting_ = 0;
};

}  // namespace megatron
