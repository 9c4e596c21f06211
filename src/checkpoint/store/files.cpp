#include "checkpoint/store/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "base/core/error.h"

namespace megatron {

namespace {

constexpr std::size_t kBlockBytes = std::size_t{256} << 10;  // hashed while it is in the cache

/// Owns an open file descriptor.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, const char* action) : descriptor_(open_retrying(path, flags)) {
    if (descriptor_ < 0) fail_with_errno(action, path);
  }
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return descriptor_; }

 private:
  static int open_retrying(const std::string& path, int flags) {
    int descriptor = -1;
    do {
      descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);  // no wait for a FIFO
    } while (descriptor < 0 && errno == EINTR);
    return descriptor;
  }

  int descriptor_;
};

std::size_t read_block(const Descriptor& file, char* block, std::size_t bytes, const std::string& path) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t now = ::read(file.get(), block + done, bytes - done);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0 && errno == EIO) {
      fail(ErrorKind::checkpoint, "{} cannot be read back from its disk: {}", path, errno_text(EIO));
    }
    if (now < 0) fail_with_errno("read", path);
    if (now == 0) break;
    done += static_cast<std::size_t>(now);
  }
  return done;
}

std::int64_t regular_bytes(const Descriptor& file, const std::string& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_with_errno("examine", path);
  verify(S_ISREG(status.st_mode), ErrorKind::filesystem, "{} is not a regular file", path);
  return status.st_size;
}

std::string hexadecimal(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::string text;
  for (const unsigned char byte : canonical.digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

FileDigest digest_file(const std::string& path) {
  const Descriptor file(path, O_RDONLY, "open");
  regular_bytes(file, path);
  (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  internal_check(state != nullptr && XXH3_128bits_reset(state.get()) == XXH_OK, "no memory for a hash");
  std::vector<char> block(kBlockBytes);
  FileDigest digest;
  while (const std::size_t bytes = read_block(file, block.data(), block.size(), path)) {
    XXH3_128bits_update(state.get(), block.data(), bytes);
    digest.bytes += static_cast<std::int64_t>(bytes);
  }
  digest.xxh3_128 = hexadecimal(XXH3_128bits_digest(state.get()));
  return digest;
}

std::string digest_text(std::string_view text) {
  return hexadecimal(XXH3_128bits(text.data(), text.size()));
}

FileType file_type(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) fail_with_errno("look at", path);
    return FileType::absent;
  }
  if (S_ISREG(status.st_mode)) return FileType::regular;
  return S_ISDIR(status.st_mode) ? FileType::directory : FileType::other;
}

std::int64_t file_bytes(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) fail_with_errno("look at", path);
    return -1;
  }
  return S_ISREG(status.st_mode) ? std::int64_t{status.st_size} : -1;
}

void create_folder_durably(const std::string& path) {
  std::error_code error;
  const bool created = std::filesystem::create_directories(path, error);
  errno = error.value();
  if (error) fail_with_errno("create", path);
  if (created) sync_path(folder_of(path));
}

std::string read_text_file(const std::string& path, std::int64_t limit) {
  const Descriptor file(path, O_RDONLY, "open");
  const std::int64_t bytes = regular_bytes(file, path);
  verify(bytes <= limit, ErrorKind::filesystem, "{} has {} bytes; at most {} are expected there", path, bytes, limit);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  text.resize(read_block(file, text.data(), text.size(), path));
  return text;
}

std::string put_folder_in_place(const std::string& from, const std::string& to, const std::string& aside,
                                const std::string& parent) {
  std::string former;
  if (aside.empty() || file_type(to) == FileType::absent) {  // rename(2) replaces no folder that has something in it
    if (::rename(from.c_str(), to.c_str()) != 0) fail_with_errno("put in place", to);
  } else if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    former = from;
  } else {
    if (::rename(to.c_str(), aside.c_str()) != 0) fail_with_errno("move aside", to);
    if (::rename(from.c_str(), to.c_str()) != 0) {
      const int error = errno;
      (void)::rename(aside.c_str(), to.c_str());
      errno = error;
      fail_with_errno("put in place", to);
    }
    former = aside;
  }
  sync_path(parent);
  return former;
}

}  // namespace megatron
