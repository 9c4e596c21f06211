// Hdf5File and Hdf5Dataset: the small part of HDF5 that token shards and checkpoints are made of.
//
// Files are flat: one-dimensional datasets and attributes directly below the root, nothing else. What we write has
// checksums everywhere: fletcher32 on the data, HDF5's own (format 1.10) on the metadata; no time stamps, so that the
// same contents are the same bytes. A file object has one owner and is not shared between threads; different files may
// be used by different threads, because every call takes the process-wide HDF5 lock (the library is not thread-safe),
// for at most kHdf5PieceBytes at a time.
//
// Reading trusts nothing: signature, links, classes, ranks, extents, filters, chunks and their number are checked
// against the size of the file before anything is allocated. Still, HDF5 1.10 itself is not safe against a malicious
// file. Errors of reading carry the kind given to open(); those of writing are ErrorKind::filesystem.
//
// This layer knows bytes and names; it must not know what a token or a parameter is. <hdf5.h> stays in its .cpp files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace megatron {

inline constexpr std::size_t kHdf5PieceBytes = std::size_t{8} << 20;  ///< moved under one hold of the lock
inline constexpr std::size_t kHdf5ChunkBytes = std::size_t{64} << 10;

/// Holds the process-wide HDF5 lock (recursive) while it lives. Needed only around raw HDF5 calls. Fair: who has asked
/// for it gets it before the one who has it now gets it again, so that a save beside the training keeps nobody from
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

enum class Hdf5Type : std::uint8_t { u8, u16, u32, u64, i32, i64, f32, f64 };
std::size_t size_of(Hdf5Type type);
const char* name_of(Hdf5Type type);

template <class T>
struct Hdf5TypeOf;
template <>
struct Hdf5TypeOf<std::uint8_t> {
  static constexpr Hdf5Type value = Hdf5Type::u8;
};
template <>
struct Hdf5TypeOf<std::uint16_t> {
  static constexpr Hdf5Type value = Hdf5Type::u16;
};
template <>
struct Hdf5TypeOf<std::uint32_t> {
  static constexpr Hdf5Type value = Hdf5Type::u32;
};
template <>
struct Hdf5TypeOf<std::uint64_t> {
  static constexpr Hdf5Type value = Hdf5Type::u64;
};
template <>
struct Hdf5TypeOf<std::int32_t> {
  static constexpr Hdf5Type value = Hdf5Type::i32;
};
template <>
struct Hdf5TypeOf<std::int64_t> {
  static constexpr Hdf5Type value = Hdf5Type::i64;
};
template <>
struct Hdf5TypeOf<float> {
  static constexpr Hdf5Type value = Hdf5Type::f32;
};
template <>
struct Hdf5TypeOf<double> {
  static constexpr Hdf5Type value = Hdf5Type::f64;
};

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

/// What attributes can be read from and written to: the root of a file, or a dataset.
class Hdf5Object {
 public:
  const std::string& path() const { return path_; }  ///< of the file
  bool has_attribute(const std::string& name) const;

  // Written once or overwritten in place (the new value must have the same type and size).
  void write_attribute(const std::string& name, std::uint64_t value);
  void write_attribute(const std::string& name, double value);
  void write_attribute(const std::string& name, std::string_view text);  ///< up to 60000 bytes, without NULs
  void write_attribute(const std::string& name, const std::vector<std::uint64_t>& values);  ///< 1 .. 4096 values

  // A missing attribute, or one of another type, is an error that names file, object and attribute.
  std::uint64_t read_u64(const std::string& name) const;
  double read_f64(const std::string& name) const;
  std::string read_text(const std::string& name) const;
  std::vector<std::uint64_t> read_u64s(const std::string& name) const;

 protected:
  Hdf5Object() = default;
  Hdf5Object(Hdf5Handle handle, std::string path, std::string name, ErrorKind kind)
      : handle_(std::move(handle)), path_(std::move(path)), name_(std::move(name)), kind_(kind) {}
  std::string where() const;  ///< "FILE: /dataset" for messages

  Hdf5Handle handle_;
  std::string path_, name_;
  ErrorKind kind_ = ErrorKind::internal;
};

/// A one-dimensional dataset. Elements in memory have the stored type; positions and counts are in elements.
class Hdf5Dataset : public Hdf5Object {
 public:
  Hdf5Dataset() = default;
  const std::string& name() const { return name_; }
  Hdf5Type type() const { return type_; }
  std::uint64_t elements() const { return elements_; }

  void write(std::uint64_t first, const void* values, std::uint64_t count);  ///< inside elements()
  void append(const void* values, std::uint64_t count);                      ///< grows a growable dataset
  void read(std::uint64_t first, void* values, std::uint64_t count) const;   ///< a damaged chunk is an error
  /// After writing, unless the dataset outlives Hdf5File::close(): the library holds back up to a chunk (64 KiB without
  /// chunks), and a full disk that is met only in the destructor goes unnoticed.
  void close();

  /// Typed forms; a T that is not the stored type is an internal error.
  template <class T>
  void append(const std::vector<T>& values) {
    internal_check(Hdf5TypeOf<T>::value == type_, "dataset written as another type than it has");
    append(values.data(), values.size());
  }
  template <class T>
  void read(std::uint64_t first, T* values, std::uint64_t count) const {
    internal_check(Hdf5TypeOf<T>::value == type_, "dataset read as another type than it has");
    read(first, static_cast<void*>(values), count);
  }
  template <class T>
  std::vector<T> read_all() const {
    std::vector<T> values(elements_);
    read(0, values.data(), elements_);
    return values;
  }

 private:
  friend class Hdf5File;
  void transfer(std::uint64_t first, void* values, std::uint64_t count, bool writing) const;
  Hdf5Type type_ = Hdf5Type::u8;
  std::uint64_t elements_ = 0;
};

class Hdf5File : public Hdf5Object {
 public:
  /// A new, empty file; an old one of this name is overwritten.
  static Hdf5File create(const std::string& path);
  /// Read-only. `kind` (data, checkpoint) is the kind of every error that reading can cause.
  static Hdf5File open(const std::string& path, ErrorKind kind);
  /// For overwriting attributes of a file that this program has just written.
  static Hdf5File open_for_update(const std::string& path);

  /// Writes out and closes the file with all its datasets; the way to learn of a full disk. Destroying an open file
  /// closes it silently.
  void close();

  /// A chunked dataset with fletcher32. Growable: starts empty. Names must not contain '/'. chunk_bytes 0: one
  /// contiguous block without checksum, at disk speed, for files that somebody hashes as a whole (checkpoints).
  Hdf5Dataset create_dataset(const std::string& name, Hdf5Type type, std::uint64_t elements,
                             std::size_t chunk_bytes = kHdf5ChunkBytes);
  Hdf5Dataset create_growable_dataset(const std::string& name, Hdf5Type type,
                                      std::size_t chunk_bytes = kHdf5ChunkBytes);

  /// The names of all datasets, sorted. Anything in the file that is not a plainly linked dataset is an error.
  std::vector<std::string> datasets() const;
  bool has_dataset(const std::string& name) const;
  Hdf5Dataset open_dataset(const std::string& name) const;

 private:
  Hdf5File(Hdf5Handle handle, std::string path, ErrorKind kind)
      : Hdf5Object(std::move(handle), std::move(path), "", kind) {}
  Hdf5Dataset create(const std::string& name, Hdf5Type type, std::uint64_t elements, bool growable,
                     std::size_t chunk_bytes);
  void check_dataset(const Hdf5Dataset& dataset) const;
};

}  // namespace megatron
