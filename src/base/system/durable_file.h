// Files that survive a crash: contents to disk, then the new name, then the folder's entry to disk. One file replaces
// an older one at once, by rename_durably; several that belong together do by a Publication.
//
// All errors are ErrorKind::filesystem and name the path. Nothing here knows what the files hold.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Flushes a closed file, or a folder's entries, to the disk.
void sync_path(const std::string& path);
/// Has the disk begin with a file while more of it is being written, so that little is left for sync_path() to wait
/// for. A hint: what goes wrong here shows there.
class EarlyFlush {
 public:
  explicit EarlyFlush(const std::string& path);  ///< an existing file's
  EarlyFlush(const EarlyFlush&) = delete;
  EarlyFlush& operator=(const EarlyFlush&) = delete;
  ~EarlyFlush();
  void written(std::size_t bytes);  ///< this number more have been

 private:
  int file_;
  std::size_t waiting_ = 0;
};

/// Creates a file with these contents, which must not exist, and flushes it. Where that fails there is none.
void create_file_durably(const std::string& path, std::string_view contents);
/// Replaces a file at once, by way of a name that no other process uses; a link is replaced, not followed.
void replace_file_durably(const std::string& path, std::string_view contents);
/// The same without waiting for the disk, for what can be made again: after a power failure the file may be empty.
void replace_file(const std::string& path, std::string_view contents);
/// rename(2), then flushes the folder that holds `to`. `from` must have been synced before.
void rename_durably(const std::string& from, const std::string& to);
/// Gives a file a second name as well, PATH + `suffix`, or the first of PATH + `suffix`2, 3, ... that is free, and
/// returns it; where the file system has no links it is a copy's.
std::string keep_as(const std::string& path, const std::string& suffix);
/// The folder part of a path: "." if there is none.
std::string folder_of(const std::string& path);
/// Removes a file if it is there; never throws (for cleaning up after another error).
void remove_quietly(const std::string& path) noexcept;

/// NAME.3f9a2c71.tmp: where a file is written that will be NAME. Another process has another one.
std::string temporary_name(const std::string& name);
/// Whether this is what follows a file's name in its temporary_name(), of any process.
bool is_behind_temporary(std::string_view rest);
/// Removes the temporary files of these names, all in one folder, which killed processes have left. For who alone
/// writes them; what cannot be removed stays.
void remove_temporaries(const std::vector<std::string>& names) noexcept;

/// A file that a command writes because its user named it.
struct OutputFile {
  std::string option, path;              ///< "--output" and "best.json"; no path: there is none to write
  bool force = false;                    ///< it may replace another file
  std::vector<std::string> inputs = {};  ///< files of the same command: it never replaces these
};
/// For the beginning, before there is work that would be lost. Error(configuration) for a name that is taken or an
/// input's; Error(filesystem) where there is no folder for it, or a link, a folder or a device has its name.
void check_output(const OutputFile& output);
/// The same check, then a complete and synced file takes its name in one step; or there is none.
void publish_output(const std::string& temporary, const OutputFile& output);
void write_output(const OutputFile& output, std::string_view contents);

/// Whether this file may take that name without asking: nothing has it, or a file of the same contents.
bool replaces_nothing_else(const std::string& temporary, const std::string& name);

/// Whether this is what follows a file's name where a Publication keeps the older one: ".replaced", ".replaced2".
bool is_behind_replaced(std::string_view rest);

/// Gives files that belong together their names, in place of older ones, all or none. Owns what it was told of under
/// temporary names, and what it has published, until commit(): without that the destructor removes it all, and puts
/// back what was there before.
///
/// While it publishes, older files lie under NAME.replaced, or NAME.replaced2 and so on where a killed publication has
/// left one there, which may be all there is: none is written over. The last file comes last and its predecessor goes
/// first, so where that one is what names the others, a crash never leaves it with files of another make: it is
/// missing, and what is missing lies under NAME.replaced, or is complete.
class Publication {
 public:
  Publication() = default;
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;
  ~Publication() { discard(); }

  /// `temporary`, perhaps not written yet, will be `name`.
  void add(std::string temporary, std::string name);
  /// Writes a temporary file, durably, and adds it.
  void write(const std::string& name, std::string_view contents);
  /// All temporary files must have been written and synced.
  void publish();
  /// Keeps what was published, and removes what it replaced, and what killed publications of these names had.
  void commit() noexcept;
  /// Files that cannot be put back are reported on standard error, with the names they have.
  void discard() noexcept;

 private:
  struct File {
    std::string temporary, name;
    std::string older = {};              // where what had this name before is; empty if nothing had
    std::vector<std::string> left = {};  // by killed publications
    bool published = false;
  };
  static void move_aside(File& file);
  void sync_folders() const;
  std::vector<File> files_;
};

}  // namespace megatron
