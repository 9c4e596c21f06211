#include "data/hdf5/hdf5_file.h"

#include <hdf5.h>

#include <algorithm>
#include <mutex>

#include "data/hdf5/hdf5_check.h"

namespace megatron {

static_assert(sizeof(hid_t) == sizeof(std::int64_t), "HDF5 1.10 or newer");

namespace {

constexpr ErrorKind kWriting = ErrorKind::filesystem;
constexpr std::size_t kMostText = 60000;  ///< an attribute of HDF5 is stored in 64 KiB at most

/// The library's identifier of a little-endian element type; not ours to close.
hid_t stored_type(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::u8: return H5T_STD_U8LE;
    case Hdf5Type::u16: return H5T_STD_U16LE;
    case Hdf5Type::u32: return H5T_STD_U32LE;
    case Hdf5Type::u64: return H5T_STD_U64LE;
    case Hdf5Type::i32: return H5T_STD_I32LE;
    case Hdf5Type::i64: return H5T_STD_I64LE;
    case Hdf5Type::f32: return H5T_IEEE_F32LE;
    case Hdf5Type::f64: return H5T_IEEE_F64LE;
  }
  return -1;
}

Hdf5Handle property_list(hid_t cls) {
  return {HDF5_CHECK(ErrorKind::internal, "", H5Pcreate(cls)), H5Pclose};
}

/// Format 1.10 (checksummed metadata), and everything closed with the file.
Hdf5Handle file_access() {
  Hdf5Handle access = property_list(H5P_FILE_ACCESS);
  HDF5_CHECK(ErrorKind::internal, "", H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110));
  HDF5_CHECK(ErrorKind::internal, "", H5Pset_fclose_degree(access.id(), H5F_CLOSE_STRONG));
  return access;
}

/// Creates an attribute of one value, or overwrites the one that is there.
void write_scalar(hid_t object, const std::string& where, const std::string& name, hid_t type, const void* value) {
  Hdf5Handle attribute;
  if (HDF5_CHECK(kWriting, where, H5Aexists(object, name.c_str())) > 0) {
    attribute = Hdf5Handle(HDF5_CHECK(kWriting, where, H5Aopen(object, name.c_str(), H5P_DEFAULT)), H5Aclose);
    Hdf5Handle old_type(HDF5_CHECK(kWriting, where, H5Aget_type(attribute.id())), H5Tclose);
    internal_check(H5Tequal(old_type.id(), type) > 0, "attribute overwritten by one of another type or size");
  } else {
    Hdf5Handle space(HDF5_CHECK(kWriting, where, H5Screate(H5S_SCALAR)), H5Sclose);
    attribute = Hdf5Handle(
        HDF5_CHECK(kWriting, where, H5Acreate2(object, name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT)),
        H5Aclose);
  }
  HDF5_CHECK(kWriting, where, H5Awrite(attribute.id(), type, value));
}

}  // namespace

namespace {
// A mutex alone is not fair: a thread that lets go and comes back at once gets it again before a sleeper has woken up.
// A thread that waits for the library holds the queue meanwhile, and comes next.
std::mutex hdf5_queue, hdf5_library;
thread_local int hdf5_holds = 0;
}  // namespace

Hdf5Lock::Hdf5Lock() {
  if (hdf5_holds++ == 0) {
    const std::lock_guard turn(hdf5_queue);
    hdf5_library.lock();
  }
  static const bool initialised = [] {
    // After a failed close (a full disk) the library's own clean-up at exit crashes; we close what we open.
    H5dont_atexit();
    H5open();
    H5PLset_loading_state(0);  // a file must not make us load code
    return true;
  }();
  // Errors are told once, by us. Builds of the library for threads have one error stack a thread.
  static thread_local const bool quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  static_cast<void>(initialised);
  static_cast<void>(quiet);
}

Hdf5Lock::~Hdf5Lock() {
  if (--hdf5_holds == 0) hdf5_library.unlock();
}

Hdf5Handle& Hdf5Handle::operator=(Hdf5Handle&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(close_, other.close_);
  return *this;
}

Hdf5Handle::~Hdf5Handle() {
  if (open()) close();
}

int Hdf5Handle::close() {
  const auto lock = lock_hdf5();
  const std::int64_t id = std::exchange(id_, -1);
  return id >= 0 ? close_(id) : 0;
}

Hdf5File Hdf5File::create(const std::string& path, unsigned most_attributes) {
  const auto lock = lock_hdf5();
  Hdf5Handle creation = property_list(H5P_FILE_CREATE);
  HDF5_CHECK(ErrorKind::internal, "", H5Pset_obj_track_times(creation.id(), false));
  if (most_attributes > kFewAttributes) {  // stored as few are, and not in a heap
    HDF5_CHECK(ErrorKind::internal, "", H5Pset_attr_phase_change(creation.id(), most_attributes, 0));
  }
  Hdf5Handle access = file_access();
  Hdf5Handle file(
      HDF5_CHECK(ErrorKind::filesystem, path, H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id())),
      H5Fclose);
  return {std::move(file), path};
}

Hdf5File Hdf5File::open_for_update(const std::string& path) {
  const auto lock = lock_hdf5();
  Hdf5Handle access = file_access();
  Hdf5Handle file(HDF5_CHECK(ErrorKind::filesystem, path, H5Fopen(path.c_str(), H5F_ACC_RDWR, access.id())), H5Fclose);
  return {std::move(file), path};
}

void Hdf5File::close() {
  const auto lock = lock_hdf5();
  if (!handle_.open()) return;
  HDF5_CHECK(kWriting, path_, H5Fflush(handle_.id(), H5F_SCOPE_GLOBAL));
  HDF5_CHECK(kWriting, path_, handle_.close());
}

// --- attributes ---------------------------------------------------------------------------------------------------

void Hdf5File::write_attribute(const std::string& name, std::uint64_t value) {
  const auto lock = lock_hdf5();
  write_scalar(handle_.id(), path_, name, H5T_STD_U64LE, &value);
}

void Hdf5File::write_attribute(const std::string& name, std::string_view text) {
  internal_check(text.size() <= kMostText && text.find('\0') == std::string_view::npos,
                 "text that no attribute can hold", text.size());
  const auto lock = lock_hdf5();
  Hdf5Handle type(HDF5_CHECK(ErrorKind::internal, "", H5Tcopy(H5T_C_S1)), H5Tclose);
  HDF5_CHECK(ErrorKind::internal, "", H5Tset_size(type.id(), std::max<std::size_t>(1, text.size())));
  HDF5_CHECK(ErrorKind::internal, "", H5Tset_strpad(type.id(), H5T_STR_NULLPAD));
  HDF5_CHECK(ErrorKind::internal, "", H5Tset_cset(type.id(), H5T_CSET_UTF8));
  const std::string copy(text);  // ends with the NUL that an empty text is stored as
  write_scalar(handle_.id(), path_, name, type.id(), copy.c_str());
}

// --- datasets -----------------------------------------------------------------------------------------------------

Hdf5Dataset Hdf5File::create_dataset(const std::string& name, Hdf5Type type, std::uint64_t elements) {
  return create(name, type, elements, 0);
}

Hdf5Dataset Hdf5File::create_growable_dataset(const std::string& name, Hdf5Type type, std::size_t chunk_bytes) {
  return create(name, type, 0, chunk_bytes);
}

Hdf5Dataset Hdf5File::create(const std::string& name, Hdf5Type type, std::uint64_t elements, std::size_t chunk_bytes) {
  internal_check(!name.empty() && name.find('/') == std::string::npos, "dataset names are flat");
  const auto lock = lock_hdf5();
  Hdf5Dataset dataset;
  dataset.path_ = path_;
  dataset.name_ = name;
  dataset.type_ = type;
  dataset.elements_ = elements;
  dataset.chunk_elements_ = chunk_bytes / size_of(type);
  const std::string where = dataset.where();
  const bool growable = dataset.chunk_elements_ > 0;
  const hsize_t extent = elements, limit = growable ? H5S_UNLIMITED : elements, chunk = dataset.chunk_elements_;
  Hdf5Handle space(HDF5_CHECK(kWriting, where, H5Screate_simple(1, &extent, &limit)), H5Sclose);
  Hdf5Handle creation = property_list(H5P_DATASET_CREATE);
  HDF5_CHECK(kWriting, where, H5Pset_obj_track_times(creation.id(), false));
  if (growable) {
    HDF5_CHECK(kWriting, where, H5Pset_chunk(creation.id(), 1, &chunk));
    HDF5_CHECK(kWriting, where, H5Pset_fletcher32(creation.id()));
    dataset.hash_.reset(XXH3_createState());
    internal_check(dataset.hash_ != nullptr && XXH3_64bits_reset(dataset.hash_.get()) == XXH_OK,
                   "no memory for a hash");
  }
  HDF5_CHECK(kWriting, where, H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER));
  dataset.handle_ = Hdf5Handle(HDF5_CHECK(kWriting, where,
                                          H5Dcreate2(handle_.id(), name.c_str(), stored_type(type), space.id(),
                                                     H5P_DEFAULT, creation.id(), H5P_DEFAULT)),
                               H5Dclose);
  return dataset;
}

void Hdf5File::finish(Hdf5Dataset& dataset) {
  if (dataset.elements_ % dataset.chunk_elements_ != 0) dataset.end_chunk();
  dataset.close();
  const std::vector<std::uint64_t>& hashes = dataset.hashes_;
  Hdf5Dataset table = create_dataset(dataset.name_ + std::string(kHashesOf), Hdf5Type::u64, hashes.size());
  if (!hashes.empty()) table.write(0, hashes.data(), hashes.size());
  const std::uint64_t hash =
      XXH3_64bits_withSeed(hashes.data(), hashes.size() * sizeof(std::uint64_t), dataset.elements_);
  {
    const auto lock = lock_hdf5();
    write_scalar(table.handle_.id(), table.where(), kHashOfHashes, H5T_STD_U64LE, &hash);
  }
  table.close();
}

void Hdf5Dataset::append(const void* values, std::uint64_t count) {
  if (count == 0) return;
  const std::uint64_t first = elements_;
  {
    const auto lock = lock_hdf5();
    const hsize_t extent = elements_ + count;
    HDF5_CHECK(kWriting, where(), H5Dset_extent(handle_.id(), &extent));
    elements_ = extent;
  }
  write(first, values, count);
  hash(first, static_cast<const std::byte*>(values), count);
}

void Hdf5Dataset::hash(std::uint64_t first, const std::byte* values, std::uint64_t count) {
  const std::uint64_t size = size_of(type_);
  while (count > 0) {
    const std::uint64_t here = std::min(count, chunk_elements_ - first % chunk_elements_);
    XXH3_64bits_update(hash_.get(), values, here * size);
    values += here * size;
    first += here;
    count -= here;
    if (first % chunk_elements_ == 0) end_chunk();
  }
}

void Hdf5Dataset::end_chunk() {
  hashes_.push_back(XXH3_64bits_digest(hash_.get()));
  XXH3_64bits_reset(hash_.get());
}

void Hdf5Dataset::write(std::uint64_t first, const void* values, std::uint64_t count) {
  internal_check(first <= elements_ && count <= elements_ - first, "access beyond the end of a dataset", first, count,
                 elements_);
  const hid_t type =
      stored_type(type_);  // little endian in the file and, on every machine this is built for, in memory
  const std::uint64_t piece = kHdf5BlockBytes / size_of(type_);
  const auto* position = static_cast<const std::byte*>(values);
  while (count > 0) {
    const auto lock = lock_hdf5();
    const hsize_t start = first, length = std::min(count, piece);
    Hdf5Handle in_memory(HDF5_CHECK(kWriting, where(), H5Screate_simple(1, &length, nullptr)), H5Sclose);
    Hdf5Handle in_file(HDF5_CHECK(kWriting, where(), H5Dget_space(handle_.id())), H5Sclose);
    HDF5_CHECK(kWriting, where(), H5Sselect_hyperslab(in_file.id(), H5S_SELECT_SET, &start, nullptr, &length, nullptr));
    HDF5_CHECK(kWriting, where(), H5Dwrite(handle_.id(), type, in_memory.id(), in_file.id(), H5P_DEFAULT, position));
    first += length;
    count -= length;
    position += length * size_of(type_);
  }
}

void Hdf5Dataset::close() {
  const auto lock = lock_hdf5();
  HDF5_CHECK(kWriting, where(), H5Dflush(handle_.id()));
  HDF5_CHECK(kWriting, where(), handle_.close());
}

}  // namespace megatron
