// Hdf5Reader and Hdf5Array: read what Hdf5File has written, and nothing else that HDF5 can be. The HDF5 library has no
// part in it, because it is not safe against a malicious file: the metadata are read by hdf5_metadata.h and its
// neighbours, the contents by pread(2). Errors have the kind that was given; those of the system are
// ErrorKind::filesystem. Not shared between threads. This layer knows bytes and names; it must not know what a token or
// a parameter is.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core/error.h"
#include "base/system/regular_file.h"
#include "data/hdf5/hdf5_type.h"

namespace megatron {

struct Hdf5Attribute;
struct Hdf5ObjectHeader;
class Hdf5Storage;

/// The attributes of a file or of a dataset. One that is missing or of another type is an error.
class Hdf5Attributes {
 public:
  std::uint64_t read_u64(const std::string& name) const;
  std::string read_text(const std::string& name) const;
  bool has(const std::string& name) const;

 protected:
  Hdf5Attributes() = default;
  Hdf5Attributes(std::shared_ptr<const RegularFile> file, std::string name);
  std::string where() const;  ///< "FILE: /dataset", for messages
  ErrorKind kind() const { return file_->kind(); }

  std::shared_ptr<const RegularFile> file_;
  std::string name_;
  std::shared_ptr<const std::vector<Hdf5Attribute>> attributes_;

 private:
  const Hdf5Attribute& find(const std::string& name) const;
};

/// A dataset. Elements in memory have the stored type; positions and counts are in elements. Keeps the file open.
class Hdf5Array : public Hdf5Attributes {
 public:
  Hdf5Array() = default;  ///< none
  const std::string& path() const { return file_->path(); }
  Hdf5Type type() const { return type_; }
  std::uint64_t elements() const { return elements_; }
  bool contiguous() const { return chunk_elements_ == 0; }
  /// Whether its contents have hashes that also find contents replaced by zeros.
  bool hashed() const { return !hashes_.empty(); }

  /// Checks contents in chunks every time: by the XXH3 hashes that Hdf5File::finish() stores, or by fletcher32 in older
  /// files, which have no hashes.
  void read(std::uint64_t first, void* values, std::uint64_t count) const;
  /// A T that is not the stored type is an internal error.
  template <class T>
  void read(std::uint64_t first, T* values, std::uint64_t count) const {
    internal_check(Hdf5TypeOf<T>::value == type_, "dataset read as another type than it has", Hdf5TypeOf<T>::value,
                   type_);
    read(first, static_cast<void*>(values), count);
  }
  template <class T>
  std::vector<T> read_all() const {
    std::vector<T> values(elements_);
    read(0, values.data(), elements_);
    return values;
  }

 private:
  friend class Hdf5Reader;
  using Hdf5Attributes::Hdf5Attributes;
  std::uint64_t bytes() const { return elements_ * size_of(type_); }
  void open(Hdf5Storage& storage, const Hdf5ObjectHeader& header);
  void open_chunks(Hdf5Storage& storage, const Hdf5ObjectHeader& header);
  void take_hashes(const Hdf5Array& table);
  void read_chunk(std::uint64_t index) const;

  Hdf5Type type_ = Hdf5Type::u8;
  std::uint64_t elements_ = 0;
  std::uint64_t address_ = 0;         // the contents', if there are no chunks
  std::uint64_t chunk_elements_ = 0;  // 0: no chunks
  std::vector<std::uint64_t> chunks_, hashes_;
  mutable std::vector<std::byte> buffer_;               // the chunk read last, and its checksum
  mutable std::uint64_t buffered_ = ~std::uint64_t{0};  // that chunk's index
};

class Hdf5Reader : public Hdf5Attributes {
 public:
  /// Opens the file and checks all of it but the contents: blocks lie in the file and do not overlap; only flat
  /// one-dimensional datasets of known types, contiguous or in chunks with fletcher32; sizes are exactly what the
  /// shapes say.
  Hdf5Reader(const std::string& path, ErrorKind kind);

  const std::string& path() const { return file_->path(); }
  std::vector<std::string> datasets() const;  ///< sorted; without those that hold hashes
  Hdf5Array open_dataset(const std::string& name) const;

 private:
  std::vector<Hdf5Array> arrays_;
};

}  // namespace megatron
