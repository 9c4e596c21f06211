// Numbers in a file without a name: what stays in memory, and what a disk that is full or gone does.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/core/error.h"
#include "base/system/mapped_file.h"
#include "base/system/storage.h"
#include "support/catch.h"
#include "support/file_size_limit.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"
#include "support/unnamed_file.h"

using namespace megatron;
using namespace megatron::test;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kBlock = MappedFile::kBlockBytes;
using Access = MappedFile::Access;

/// The kernel's count of bytes of a mapping: those in this process's memory ("Rss"), or of these those that are written
/// to the disk ("Private_Dirty").
std::size_t bytes_of_mapping(const void* memory, const std::string& name) {
  std::ifstream maps("/proc/self/smaps");
  std::uintptr_t first = 0, end = 0;
  std::size_t kib = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &first, &end) == 2) {
      inside = reinterpret_cast<std::uintptr_t>(memory) == first;
    } else if (inside && std::sscanf(line.c_str(), (name + ": %zu kB").c_str(), &kib) == 1) {
      return kib << 10;
    }
  }
  return 0;
}

std::size_t resident_bytes_of(const void* memory) {
  return bytes_of_mapping(memory, "Rss");
}

std::uint64_t number_at(std::size_t i) {
  return i * 0x9E3779B97F4A7C15 + 1;
}

struct End {
  int code = -1;
  std::string said;
  bool stack = false;  ///< one was written
};

/// The end of a child process, under a crash report, whose file has lost its contents.
template <class Body>
End end_of(Body body) {
  const TemporaryFolder folder;
  const std::string said = folder.file("said.txt");
  fs::create_directory(folder.file("disk"));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    if (std::freopen(said.c_str(), "w", stderr) == nullptr) ::_exit(99);
    std::signal(SIGBUS, SIG_DFL);
    const CrashReport report("rank 3 of 8 on node07", folder.file("stack.txt"), nullptr);
    MappedFile file(folder.file("disk"), 3 * kBlock, "the numbers", "a.key");
    file.use(file.data(), 2 * kBlock, Access::write);
    std::memset(file.data(), 1, 2 * kBlock);
    file.rest();
    if (::truncate(open_file_in(fs::canonical(folder.file("disk")).string()).c_str(), 0) != 0) ::_exit(98);
    try {
      body(file);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::fflush(stderr);
      ::_exit(error.exit_code());
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents_of(said),
          fs::exists(folder.file("stack.txt"))};
}

}  // namespace

TEST_CASE("mapped file: zeros at first, numbers that stay, few of them in memory") {
  const TemporaryFolder folder;
  constexpr std::size_t blocks = 20, count = (blocks * kBlock - 4096) / sizeof(std::uint64_t);
  MappedFile file(folder.path(), count * sizeof(std::uint64_t), "the numbers", "a.key");
  CHECK(fs::is_empty(folder.path()));  // it has no name
  auto* const numbers = reinterpret_cast<std::uint64_t*>(file.data());
  std::size_t most = 0, wrong = 0;
  const std::size_t step = kBlock / sizeof(std::uint64_t) / 2;
  for (std::size_t first = 0; first < count; first += step) {
    const std::size_t end = std::min(first + step, count);
    file.use(numbers + first, (end - first) * sizeof(std::uint64_t), Access::write);
    for (std::size_t i = first; i < end; ++i) {
      wrong += numbers[i] != 0 ? 1 : 0;
      numbers[i] = number_at(i);
    }
    most = std::max(most, resident_bytes_of(file.data()));
  }
  CHECK(wrong == 0);
  CHECK(most <= MappedFile::kMostOpen * kBlock);
  CHECK(most >= MappedFile::kMostOpen * kBlock / 2);
  file.rest();
  CHECK(resident_bytes_of(file.data()) == 0);
  for (std::size_t i = 0; i < count; ++i) wrong += numbers[i] != number_at(i) ? 1 : 0;  // without use()
  CHECK(wrong == 0);
  CHECK(resident_bytes_of(file.data()) > MappedFile::kMostOpen * kBlock);
  file.rest();
  CHECK(resident_bytes_of(file.data()) == 0);
}

TEST_CASE("mapped file: a range of more blocks than are kept") {
  const TemporaryFolder folder;
  MappedFile file(folder.path(), 12 * kBlock, "the numbers", "a.key");
  file.use(file.data() + kBlock / 2, 11 * kBlock, Access::write);
  std::memset(file.data(), 7, file.bytes());
  file.rest();
  CHECK(std::count(file.data(), file.data() + file.bytes(), std::byte{7}) == static_cast<std::ptrdiff_t>(file.bytes()));
}

TEST_CASE("mapped file: what is only read is not written again") {
  const TemporaryFolder folder;
  if (storage_that_is_no_local_disk(folder.path()) == "tmpfs") return;  // whose pages all count as dirty
  MappedFile file(folder.path(), 4 * kBlock, "the numbers", "a.key");
  file.use(file.data(), file.bytes(), Access::write);
  std::memset(file.data(), 7, file.bytes());
  file.rest();
  // Pages that the disk still has to take count as dirty in every mapping of them.
  const int same = ::open(open_file_in(fs::canonical(folder.path()).string()).c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(::fsync(same) == 0);
  ::close(same);
  file.use(file.data(), 2 * kBlock, Access::read);
  CHECK(std::count(file.data(), file.data() + 2 * kBlock, std::byte{7}) == static_cast<std::ptrdiff_t>(2 * kBlock));
  CHECK(resident_bytes_of(file.data()) == 2 * kBlock);
  CHECK(bytes_of_mapping(file.data(), "Private_Dirty") == 0);
  file.use(file.data() + kBlock, kBlock, Access::write);  // the same block, to be written now
  CHECK(bytes_of_mapping(file.data(), "Private_Dirty") == kBlock);
}

TEST_CASE("mapped file: what the next pass begins with is read ahead of it") {
  const TemporaryFolder folder(fs::current_path());  // where tests run is a disk more often than where they write
  MappedFile file(folder.path(), 8 * kBlock, "the numbers", "a.key");
  const auto pass = [&](std::vector<std::size_t> blocks, Access access) {
    for (const std::size_t block : blocks) {
      file.use(file.data() + block * kBlock, kBlock, access);
      if (access == Access::write) std::memset(file.data() + block * kBlock, static_cast<int>(block), kBlock);
    }
    file.rest();
  };
  file.read_ahead(8 * kBlock);  // no pass yet
  pass({5, 0, 6, 1, 7, 2, 3, 4}, Access::write);
  pass({0, 1, 2, 3, 4, 5, 6, 7}, Access::read);  // not the order of an update
  const UnnamedFile same(folder.path());
  if (!same.drop()) {
    WARN("skipped: the cache of this file system cannot be filled and emptied");
    return;
  }
  file.read_ahead(3 * kBlock + 1);
  std::string there = same.cached(kBlock);
  for (; there[5] != '1' || there[0] != '1' || there[6] != '1'; there = same.cached(kBlock)) std::this_thread::yield();
  CHECK(there.substr(2, 3) == "000");
  std::size_t wrong = 0;
  for (std::size_t block = 0; block < 8; ++block) {
    file.use(file.data() + block * kBlock, kBlock, Access::read);
    wrong += static_cast<std::size_t>(file.data()[block * kBlock + 17] != static_cast<std::byte>(block));
  }
  CHECK(wrong == 0);
  file.read_ahead(kBlock);  // and ends without a use
}

TEST_CASE("mapped file: no room for it, or no folder", "[fault-45]") {
  const TemporaryFolder folder;
  {
    const FileSizeLimit limit(1 << 20);
    require_error(ErrorKind::filesystem,
                  {"cannot reserve 2097152 bytes for the numbers", folder.path(), "are free", "not allowed here",
                   "a.key names the folder"},
                  [&] { MappedFile(folder.path(), 2 << 20, "the numbers", "a.key"); });
  }
  CHECK(fs::is_empty(folder.path()));
  require_error(ErrorKind::filesystem, {"cannot make a file for the numbers in", "missing", "a.key"},
                [&] { MappedFile(folder.file("missing"), 1 << 20, "the numbers", "a.key"); });
}

TEST_CASE("mapped file: what is told of a disk that is gone", "[fault-143]") {
  const End touched = end_of([](MappedFile& file) { std::memset(file.data() + kBlock, 2, 100); });
  CHECK(touched.code == 7);
  CHECK_FALSE(touched.stack);
  CHECK(touched.said.starts_with("error: rank 3 of 8 on node07: the file of the numbers in "));
  CHECK(touched.said.find("the newest checkpoint is whole: run the same command again, with a.key") !=
        std::string::npos);
  CHECK(std::count(touched.said.begin(), touched.said.end(), '\n') == 1);
  const End used = end_of([](MappedFile& file) { file.use(file.data() + kBlock, 100, Access::write); });
  CHECK(used.code == 7);
  CHECK(used.said.starts_with("cannot read the file of the numbers in "));
  // Other memory than the file's is a defect as before.
  const End elsewhere = end_of([](MappedFile&) { std::raise(SIGBUS); });
  CHECK(elsewhere.code == 128 + SIGBUS);
  CHECK(elsewhere.stack);
}
