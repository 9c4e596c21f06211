#include "base/system/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <set>
#include <utility>

#include "base/core/error.h"
#include "base/system/errno_text.h"
#include "base/system/notes.h"
#include "base/system/regular_file.h"

namespace megatron {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFlushBytes = std::size_t{32} << 20;
constexpr std::string_view kReplaced = ".replaced", kTemporary = ".tmp";

void rename_or_fail(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return;
  const int reason = errno;
  fail(ErrorKind::filesystem, "cannot rename {} to {}: {}", from, to, errno_text(reason));
}

/// Status of the file or folder of this name, links not followed. One that cannot be looked at may well be there: that
/// is an error.
fs::file_status status_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (!fs::status_known(status)) {
    fail(ErrorKind::filesystem, "{}: cannot look at it: {}", path, errno_text(error.value()));
  }
  return status;
}

}  // namespace

void sync_path(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail_with_errno("open and flush to disk", path);
  const int result = ::fsync(file);
  const int reason = errno;
  ::close(file);
  // Some file systems cannot flush a folder and say EINVAL; the rename is then as durable as they make it.
  if (result == 0 || reason == EINVAL) return;
  fail(ErrorKind::filesystem, "cannot flush {} to disk: {}", path, errno_text(reason));
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

namespace {

/// A new file; `sync`: on the disk when this returns.
void write_new_file(const std::string& path, std::string_view contents, bool sync) {
  int file = -1;
  do {
    file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file < 0 && errno == EINTR);
  if (file < 0) fail_with_errno("create", path);
  int reason = 0;
  while (reason == 0 && !contents.empty()) {
    const ssize_t written = ::write(file, contents.data(), contents.size());
    if (written >= 0) contents.remove_prefix(static_cast<std::size_t>(written));
    if (written < 0 && errno != EINTR) reason = errno;
  }
  while (sync && reason == 0 && ::fsync(file) != 0) {
    if (errno != EINTR) reason = errno;
  }
  // Network file systems may report a failed write only here.
  if (::close(file) != 0 && reason == 0 && errno != EINTR) reason = errno;
  if (reason == 0) return;
  remove_quietly(path);
  fail(ErrorKind::filesystem, "cannot write {}: {}", path, errno_text(reason));
}

void write_and_rename(const std::string& path, std::string_view contents, bool sync) {
  const std::string temporary = temporary_name(path);
  write_new_file(temporary, contents, sync);
  try {
    rename_or_fail(temporary, path);
  } catch (const Error&) {
    remove_quietly(temporary);
    throw;
  }
}

}  // namespace

void create_file_durably(const std::string& path, std::string_view contents) {
  write_new_file(path, contents, true);
}

void replace_file_durably(const std::string& path, std::string_view contents) {
  write_and_rename(path, contents, true);
  sync_path(folder_of(path));
}

void replace_file(const std::string& path, std::string_view contents) {
  write_and_rename(path, contents, false);
}

std::string keep_as(const std::string& path, const std::string& suffix) {
  std::string name = path + suffix;
  for (int number = 2;; ++number) {
    if (::link(path.c_str(), name.c_str()) == 0) return name;
    int reason = errno;
    std::error_code error;
    if (reason != EEXIST && fs::copy_file(path, name, error)) {
      sync_path(name);
      return name;
    }
    if (reason != EEXIST) reason = error.value();
    if (reason != EEXIST) fail(ErrorKind::filesystem, "cannot keep {} as {}: {}", path, name, errno_text(reason));
    name = fmt::format("{}{}{}", path, suffix, number);
  }
}

void check_output(const OutputFile& output) {
  if (output.path.empty()) return;
  const std::string called = output.option + " " + output.path, folder = folder_of(output.path);
  std::error_code unknown;
  verify(fs::is_directory(folder, unknown), ErrorKind::filesystem, "{}: there is no folder {}; make it first", called,
         folder);
  const fs::file_status status = status_of(output.path);
  if (!fs::exists(status)) return;
  verify(!fs::is_directory(status), ErrorKind::filesystem, "{} is a folder; name a file", called);
  verify(!fs::is_symlink(status), ErrorKind::filesystem, "{} is a symbolic link; name the file itself", called);
  verify(fs::is_regular_file(status), ErrorKind::filesystem, "{} is not a regular file; name one", called);
  for (const std::string& input : output.inputs) {
    verify(!fs::equivalent(output.path, input, unknown), ErrorKind::configuration,
           "{} is a file that this command reads; name another one", called);
  }
  verify(output.force, ErrorKind::configuration,
         "{}: there is such a file; name another one, or replace it with --force", called);
}

void publish_output(const std::string& temporary, const OutputFile& output) {
  try {
    check_output(output);
    if (output.force) return rename_durably(temporary, output.path);
  } catch (const Error&) {
    remove_quietly(temporary);
    throw;
  }
  // Both refuse a name that is taken; file systems without links have the second.
  int reason = ::link(temporary.c_str(), output.path.c_str()) == 0 ? 0 : errno;
  if (reason != 0 && reason != EEXIST) {
    reason = ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, output.path.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
  }
  remove_quietly(temporary);
  if (reason != 0) fail(ErrorKind::filesystem, "{}: cannot be made: {}", output.path, errno_text(reason));
  sync_path(folder_of(output.path));
}

void write_output(const OutputFile& output, std::string_view contents) {
  if (output.path.empty()) return;
  const std::string temporary = temporary_name(output.path);
  create_file_durably(temporary, contents);
  publish_output(temporary, output);
}

void rename_durably(const std::string& from, const std::string& to) {
  rename_or_fail(from, to);
  sync_path(folder_of(to));
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void remove_quietly(const std::string& path) noexcept {
  ::unlink(path.c_str());
}

std::string temporary_name(const std::string& name) {
  static const std::string token = fmt::format("{:08x}", std::random_device{}());
  return fmt::format("{}.{}{}", name, token, kTemporary);
}

bool is_behind_temporary(std::string_view rest) {
  constexpr std::size_t kDigits = 8;
  return rest.size() == 1 + kDigits + kTemporary.size() && rest.starts_with('.') && rest.ends_with(kTemporary) &&
         rest.substr(1, kDigits).find_first_not_of("0123456789abcdef") == rest.npos;
}

void remove_temporaries(const std::vector<std::string>& names) noexcept try {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_of(names.at(0)))) {
    const std::string file = entry.path().filename().string();
    for (const std::string& path : names) {
      const std::string name = fs::path(path).filename().string();
      const bool of_it = file.starts_with(name) && is_behind_temporary(std::string_view(file).substr(name.size()));
      if (of_it && fs::is_regular_file(entry.symlink_status())) found.push_back(entry.path().string());
    }
  }
  for (const std::string& path : found) remove_quietly(path);
} catch (const std::exception&) {
}

bool replaces_nothing_else(const std::string& temporary, const std::string& name) {
  if (!fs::exists(status_of(name))) return true;
  const RegularFile mine(temporary, ErrorKind::filesystem), theirs(name, ErrorKind::filesystem);
  if (mine.bytes() != theirs.bytes()) return false;
  std::string a(std::min<std::uint64_t>(mine.bytes(), 1 << 20), '\0'), b(a.size(), '\0');
  for (std::uint64_t first = 0; first < mine.bytes(); first += a.size()) {
    const std::uint64_t count = std::min<std::uint64_t>(a.size(), mine.bytes() - first);
    mine.read(first, a.data(), count);
    theirs.read(first, b.data(), count);
    if (a != b) return false;
  }
  return true;
}

bool is_behind_replaced(std::string_view rest) {
  return rest.starts_with(kReplaced) && rest.find_first_not_of("0123456789", kReplaced.size()) == rest.npos;
}

void Publication::add(std::string temporary, std::string name) {
  files_.push_back({std::move(temporary), std::move(name)});
}

void Publication::write(const std::string& name, std::string_view contents) {
  add(temporary_name(name), name);
  create_file_durably(files_.back().temporary, contents);
}

void Publication::move_aside(File& file) {
  const fs::file_status status = status_of(file.name);
  verify(!fs::is_directory(status), ErrorKind::filesystem, "{}: cannot write it: a folder has this name", file.name);
  verify(!fs::exists(status) || fs::is_regular_file(status) || fs::is_symlink(status), ErrorKind::filesystem,
         "{}: cannot write it: a device or a named pipe has this name", file.name);
  std::string free = fmt::format("{}{}", file.name, kReplaced);
  while (fs::exists(status_of(free))) {
    file.left.push_back(std::move(free));
    free = fmt::format("{}{}{}", file.name, kReplaced, file.left.size() + 1);
  }
  if (!fs::exists(status)) return;
  rename_or_fail(file.name, free);
  file.older = std::move(free);
}

void Publication::publish() {
  for (auto file = files_.rbegin(); file != files_.rend(); ++file) move_aside(*file);
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
    // The last number first: a gap would hide those after it.
    for (auto older = file.left.rbegin(); older != file.left.rend(); ++older) remove_quietly(*older);
  }
  files_.clear();
}

void Publication::discard() noexcept {
  for (auto file = files_.rbegin(); file != files_.rend(); ++file) {
    remove_quietly(file->published ? file->name : file->temporary);
  }
  for (const File& file : files_) {
    if (file.older.empty() || std::rename(file.older.c_str(), file.name.c_str()) == 0) continue;
    const int reason = errno;
    try {
      print_warning(fmt::format("{} cannot have its name {} back: {}; rename it by hand", file.older, file.name,
                                errno_text(reason)));
    } catch (const std::exception&) {  // no memory to say it
    }
  }
  files_.clear();
}

}  // namespace megatron
