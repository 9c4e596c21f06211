// Identity of an input file, so that ranks on several nodes can tell whether they have the same one under its name: a
// device's number and an inode mean nothing elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

struct InputIdentity {
  std::string path;
  std::uint64_t bytes = 0;   ///< on disk
  std::uint64_t pieces = 0;  ///< hash of kHashedPieces pieces of the contents; of all, where there is not more
  std::int64_t seconds = 0, nanoseconds = 0;  ///< time of its last modification
};

inline constexpr std::uint64_t kHashedPieces = 16, kHashedPieceBytes = 4096;

/// ErrorKind::data if it is no file, ErrorKind::filesystem if it cannot be read.
InputIdentity identify_input(const std::string& path);
/// XXH3 of all of its contents.
std::uint64_t hash_input(const std::string& path);

/// The difference of these files from the other's, in words: empty if sizes and pieces are alike.
std::string difference_of_inputs(const std::vector<InputIdentity>& here, const std::vector<InputIdentity>& there);
/// Whether they are from the same moment as well. Copies need not be, and then have to be hashed as a whole.
bool modified_alike(const std::vector<InputIdentity>& here, const std::vector<InputIdentity>& there);

}  // namespace megatron
