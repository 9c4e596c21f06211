#include "hdf5/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"

namespace megatron {

namespace {

constexpr std::size_t kFlushBytes = std::size_t{32} << 20;

void rename_or_fail(const std::string& from, const std::string& to) {
  const bool renamed = std::rename(from.c_str(), to.c_str()) == 0;
  verify(renamed, ErrorKind::filesystem, "cannot rename {} to {}: {}", from, to, std::strerror(errno));
}

}  // namespace

void sync_path(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  verify(file >= 0, ErrorKind::filesystem, "{}: cannot open it to flush it to disk: {}", path, std::strerror(errno));
  const int result = ::fsync(file);
  const int reason = errno;
  ::close(file);
  // Some file systems cannot flush a folder and say EINVAL; the rename is then as durable as they make it.
  verify(result == 0 || reason == EINVAL, ErrorKind::filesystem, "{}: cannot flush it to disk: {}", path,
         std::strerror(reason));
}

EarlyFlush::EarlyFlush(const std::string& path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

EarlyFlush::~EarlyFlush() {
  if (file_ >= 0) ::close(file_);
}

void EarlyFlush::written(std::size_t bytes) {
  waiting_ += bytes;
  if (waiting_ < kFlushBytes || file_ < 0) return;
  waiting_ = 0;
  static_cast<void>(::sync_file_range(file_, 0, 0, SYNC_FILE_RANGE_WRITE));
}

void write_durably(const std::string& path, std::string_view contents) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int reason = file < 0 ? errno : 0;
  while (reason == 0 && !contents.empty()) {
    const ssize_t written = ::write(file, contents.data(), contents.size());
    if (written >= 0) contents.remove_prefix(static_cast<std::size_t>(written));
    if (written < 0 && errno != EINTR) reason = errno;
  }
  if (file >= 0 && ::close(file) != 0 && reason == 0) reason = errno;
  verify(reason == 0, ErrorKind::filesystem, "{}: cannot write it: {}", path, std::strerror(reason));
  sync_path(path);
}

void rename_durably(const std::string& from, const std::string& to) {
  rename_or_fail(from, to);
  sync_path(folder_of(to));
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void remove_quietly(const std::string& path) noexcept {
  ::unlink(path.c_str());
}

void Publication::add(std::string temporary, std::string name) {
  files_.push_back({std::move(temporary), std::move(name), "", false});
}

void Publication::write(const std::string& name, std::string_view contents) {
  add(name + ".tmp", name);
  write_durably(files_.back().temporary, contents);
}

void Publication::publish() {
  for (auto file = files_.rbegin(); file != files_.rend(); ++file) {
    std::error_code ignored;
    const auto status = std::filesystem::symlink_status(file->name, ignored);
    verify(!std::filesystem::is_directory(status), ErrorKind::filesystem, "{}: cannot write it: a folder has this name",
           file->name);
    if (!std::filesystem::exists(status)) continue;
    const std::string older = file->name + ".replaced";
    rename_or_fail(file->name, older);
    file->older = older;
  }
  sync_folders();
  for (File& file : files_) {
    rename_or_fail(file.temporary, file.name);
    file.published = true;
  }
  sync_folders();
}

void Publication::sync_folders() const {
  std::set<std::string> folders;
  for (const File& file : files_) folders.insert(folder_of(file.name));
  for (const std::string& folder : folders) sync_path(folder);
}

void Publication::commit() noexcept {
  for (const File& file : files_) {
    if (!file.older.empty()) remove_quietly(file.older);
  }
  files_.clear();
}

void Publication::discard() noexcept {
  for (auto file = files_.rbegin(); file != files_.rend(); ++file) {
    remove_quietly(file->published ? file->name : file->temporary);
  }
  for (const File& file : files_) {
    if (!file.older.empty()) std::rename(file.older.c_str(), file.name.c_str());
  }
  files_.clear();
}

}  // namespace megatron
