#include "training/loop/shared_directory.h"

#include <chrono>
#include <random>
#include <thread>

#include "base/system/durable_file.h"
#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/files.h"
#include "checkpoint/store/folder.h"
#include "distributed/comm/agreement.h"

namespace megatron {

namespace {

// Network file systems may show a new file to other nodes some seconds late.
constexpr std::chrono::seconds kVisibilityTimeout{5};
constexpr std::int64_t kLongestMark = 4096;

/// The contents of the file, or why it cannot be read.
std::string look_at(const std::string& path) try {
  return read_text_file(path, kLongestMark);
} catch (const Error& error) {
  return error.what();
}

void require_mark(const std::string& path, const std::string& mark, const std::string& directory,
                  const std::string& root_host) {
  const auto deadline = std::chrono::steady_clock::now() + kVisibilityTimeout;
  for (std::string found; (found = look_at(path)) != mark;) {
    if (std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    fail(ErrorKind::filesystem,
         "run.directory = \"{}\" is another directory here than on rank 0 ({}), whose files are not in it: {}; name a "
         "directory on a file system that all nodes share",
         directory, root_host, found);
  }
}

}  // namespace

void require_shared_directory(Communicator& world, const Config& config, const std::string& host) {
  const std::string& directory = config.run.directory;
  const std::string folder = config.checkpoint.never ? directory : checkpoints_folder(directory);
  const std::string path = folder + "/.tmp_mark";
  std::string mark = fmt::format("{} {:08x}{:08x}", host, std::random_device()(), std::random_device()());
  agree(
      world,
      [&] {
        if (world.rank() != 0) return;
        check_writable(folder);
        if (world.size() > 1 && !config.checkpoint.never) replace_file_durably(path, mark);
      },
      ErrorKind::filesystem);
  if (world.size() == 1 || config.checkpoint.never) return;  // without checkpoints only rank 0 writes
  mark = world.broadcast_text(mark, 0);
  try {
    agree(
        world,
        [&] {
          if (world.rank() == 0) return;
          require_mark(path, mark, directory, mark.substr(0, mark.find(' ')));
          const std::string own = fmt::format("{}/.tmp_mark_{}", folder, world.rank());
          remove_quietly(own);  // left by a job that died here
          create_file_durably(own, mark);
          remove_quietly(own);
        },
        ErrorKind::filesystem);
  } catch (...) {
    if (world.rank() == 0) remove_quietly(path);
    throw;
  }
  if (world.rank() == 0) remove_quietly(path);
}

}  // namespace megatron
