// Hdf5File and Hdf5Dataset: write the small part of HDF5 that token shards and checkpoints are made of. hdf5_reader.h
// reads it. Files are flat: one-dimensional datasets and attributes directly below the root, nothing else. Metadata
// have HDF5's checksums (format 1.10); there are no time stamps, so that the same contents are the same bytes. All
// errors are ErrorKind::filesystem. This layer knows bytes and names; it must not know what a token or a parameter is.
// <hdf5.h> stays in its .cpp files.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/error.h"
#include "data/hdf5/hdf5_type.h"

namespace megatron {

inline constexpr std::size_t kHdf5BlockBytes = std::size_t{8} << 20;  ///< moved under one hold of the lock
inline constexpr std::size_t kHdf5ChunkBytes = std::size_t{64} << 10;

/// Holds the process-wide HDF5 lock (recursive) while it lives. Needed only around raw HDF5 calls. Fair: who has asked
/// for it gets it before the one who has it now gets it again, so that a background save keeps no thread from
/// reading the next batch.
class Hdf5Lock {
 public:
  Hdf5Lock();
  Hdf5Lock(const Hdf5Lock&) = delete;
  Hdf5Lock& operator=(const Hdf5Lock&) = delete;
  ~Hdf5Lock();
};
inline Hdf5Lock lock_hdf5() {
  return {};
}

/// Owns one HDF5 identifier and closes it under the lock. Move-only.
class Hdf5Handle {
 public:
  using Close = int (*)(std::int64_t);
  Hdf5Handle() = default;
  Hdf5Handle(std::int64_t id, Close closer) : id_(id), close_(closer) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept;
  ~Hdf5Handle();
  std::int64_t id() const { return id_; }
  bool open() const { return id_ >= 0; }
  int close();  ///< negative: the library reported an error
 private:
  std::int64_t id_ = -1;
  Close close_ = nullptr;
};

inline constexpr std::string_view kHashesOf = ".xxh3";  ///< after a dataset's name: the one that has its hashes
inline constexpr const char* kHashOfHashes = "xxh3";    ///< its attribute

/// A one-dimensional dataset that is being written. Elements in memory have the stored type; positions and counts are
/// in elements.
class Hdf5Dataset {
 public:
  Hdf5Dataset() = default;
  Hdf5Type type() const { return type_; }

  void write(std::uint64_t first, const void* values, std::uint64_t count);  ///< inside one of fixed size
  void append(const void* values, std::uint64_t count);                      ///< to one that grows
  template <class T>
  void append(const std::vector<T>& values) {
    internal_check(Hdf5TypeOf<T>::value == type_, "dataset written as another type than it has", Hdf5TypeOf<T>::value,
                   type_);
    append(values.data(), values.size());
  }
  /// After writing one of fixed size, unless the dataset outlives Hdf5File::close(): the library holds back up to 64
  /// KiB, and a full disk that is met only in the destructor goes unnoticed.
  void close();

 private:
  friend class Hdf5File;
  std::string where() const { return fmt::format("{}: /{}", path_, name_); }
  void hash(std::uint64_t first, const std::byte* values, std::uint64_t count);
  void end_chunk();

  Hdf5Handle handle_;
  std::string path_, name_;
  Hdf5Type type_ = Hdf5Type::u8;
  std::uint64_t elements_ = 0;
  std::uint64_t chunk_elements_ = 0;   // 0: of fixed size
  std::vector<std::uint64_t> hashes_;  // the complete chunks'
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash_{nullptr, XXH3_freeState};  // the last chunk's
};

/// Has one owner and is not shared between threads; different files may be used by different threads, because every
/// call takes the process-wide HDF5 lock (the library is not thread-safe), for at most kHdf5BlockBytes at a time.
class Hdf5File {
 public:
  static constexpr unsigned kFewAttributes = 8;
  /// A new, empty file; an old one of this name is overwritten. With more attributes than it is made for, Hdf5Reader
  /// refuses it.
  static Hdf5File create(const std::string& path, unsigned most_attributes = kFewAttributes);
  /// For overwriting attributes of a file that this program has just written.
  static Hdf5File open_for_update(const std::string& path);

  const std::string& path() const { return path_; }

  // Written once or overwritten in place (the new value must have the same type and size).
  void write_attribute(const std::string& name, std::uint64_t value);
  void write_attribute(const std::string& name, std::string_view text);  ///< up to 60000 bytes, without NULs

  /// One contiguous block without checksum, for files that are hashed as a whole (checkpoints). Names must not contain
  /// '/'.
  Hdf5Dataset create_dataset(const std::string& name, Hdf5Type type, std::uint64_t elements);
  /// Starts empty; in chunks with fletcher32, hashed as it grows.
  Hdf5Dataset create_growable_dataset(const std::string& name, Hdf5Type type,
                                      std::size_t chunk_bytes = kHdf5ChunkBytes);
  /// Closes a dataset that has grown, and writes the XXH3 hashes of its chunks.
  void finish(Hdf5Dataset& dataset);

  /// Writes out and closes the file with all its datasets; the way to learn of a full disk. Destroying an open file
  /// closes it silently.
  void close();

 private:
  Hdf5File(Hdf5Handle handle, std::string path) : handle_(std::move(handle)), path_(std::move(path)) {}
  Hdf5Dataset create(const std::string& name, Hdf5Type type, std::uint64_t elements, std::size_t chunk_bytes);
  Hdf5Handle handle_;
  std::string path_;
};

}  // namespace megatron
