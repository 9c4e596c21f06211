#include "data/preprocess/input_identity.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/system/errno_text.h"
#include "base/system/regular_file.h"

namespace megatron {

namespace {

class Hash {
 public:
  Hash() : state_(XXH3_createState(), XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  void add(const RegularFile& file, std::uint64_t first, std::uint64_t bytes) {
    buffer_.resize(bytes);
    file.read(first, buffer_.data(), bytes);
    XXH3_64bits_update(state_.get(), buffer_.data(), bytes);
  }
  std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
  std::string buffer_;
};

}  // namespace

InputIdentity identify_input(const std::string& path) {
  const RegularFile file(path, ErrorKind::data);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail_with_errno("look at", path);
  Hash hash;
  if (file.bytes() <= kHashedPieces * kHashedPieceBytes) {
    hash.add(file, 0, file.bytes());
  } else {  // the first and the last bytes, and as much between them
    const std::uint64_t last = file.bytes() - kHashedPieceBytes;
    for (std::uint64_t i = 0; i < kHashedPieces; ++i) {
      hash.add(file, last / (kHashedPieces - 1) * i + (i + 1 == kHashedPieces ? last % (kHashedPieces - 1) : 0),
               kHashedPieceBytes);
    }
  }
  return {path, file.bytes(), hash.value(), status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

std::uint64_t hash_input(const std::string& path) {
  constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;
  const RegularFile file(path, ErrorKind::data);
  Hash hash;
  for (std::uint64_t first = 0; first < file.bytes(); first += kBlockBytes) {
    hash.add(file, first, std::min(kBlockBytes, file.bytes() - first));
  }
  return hash.value();
}

std::string difference_of_inputs(const std::vector<InputIdentity>& here, const std::vector<InputIdentity>& there) {
  for (std::size_t i = 0; i < std::min(here.size(), there.size()); ++i) {
    const InputIdentity &mine = here[i], &theirs = there[i];
    if (mine.path != theirs.path) return fmt::format("{} is in the place of {}", mine.path, theirs.path);
    if (mine.bytes != theirs.bytes)
      return fmt::format("{} has {} bytes instead of {}", mine.path, mine.bytes, theirs.bytes);
    if (mine.pieces != theirs.pieces) return fmt::format("{} has other contents", mine.path);
  }
  if (here.size() == there.size()) return "";
  return fmt::format("{} files instead of {}", here.size(), there.size());
}

bool modified_alike(const std::vector<InputIdentity>& here, const std::vector<InputIdentity>& there) {
  return std::equal(here.begin(), here.end(), there.begin(), there.end(), [](const auto& mine, const auto& theirs) {
    return mine.seconds == theirs.seconds && mine.nanoseconds == theirs.nanoseconds;
  });
}

}  // namespace megatron
