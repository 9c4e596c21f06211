#include "hdf5/hdf5_file.h"

#include <hdf5.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <mutex>

#include "base/errno_text.h"
#include "hdf5/hdf5_check.h"

namespace megatron {

static_assert(sizeof(hid_t) == sizeof(std::int64_t), "HDF5 1.10 or newer");

namespace {

constexpr std::array kTypes{Hdf5Type::u8,  Hdf5Type::u16, Hdf5Type::u32, Hdf5Type::u64,
                            Hdf5Type::i32, Hdf5Type::i64, Hdf5Type::f32, Hdf5Type::f64};
constexpr std::uint64_t kLargestChunkBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostDeflated = 1100;  ///< deflate packs a chunk at most about 1032 times

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

/// HDF5 looks for its signature at any power of two and believes what follows; only a plain file is let through.
void check_signature(const std::string& path, ErrorKind kind) {
  struct stat info {};
  const bool found = ::stat(path.c_str(), &info) == 0;
  const int reason = errno;
  if (!found) {
    fail(reason == ENOENT ? kind : ErrorKind::filesystem, "{}: cannot open it: {}", path, errno_text(reason));
  }
  verify(S_ISREG(info.st_mode), kind, "{}: not a regular file", path);
  std::array<char, 9> start{};
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) fail(ErrorKind::filesystem, "{}: cannot open it: {}", path, errno_text(errno));
  file.read(start.data(), start.size());
  static constexpr std::array<char, 8> kSignature{'\211', 'H', 'D', 'F', '\r', '\n', '\032', '\n'};
  const bool signature = file.gcount() == 9 && std::equal(kSignature.begin(), kSignature.end(), start.begin());
  verify(signature, kind, "{}: not an HDF5 file, or one whose beginning is damaged", path);
  verify(start[8] == 0 || start[8] == 2 || start[8] == 3, kind, "{}: HDF5 superblock version {} is not supported", path,
         static_cast<int>(static_cast<unsigned char>(start[8])));
}

std::uint64_t file_bytes(const std::string& path) {
  struct stat info {};
  const bool found = ::stat(path.c_str(), &info) == 0;
  if (!found) fail(ErrorKind::filesystem, "{}: cannot look at it: {}", path, errno_text(errno));
  return static_cast<std::uint64_t>(info.st_size);
}

}  // namespace

namespace {
// A mutex alone is not fair: a thread that lets go and comes back at once gets it again before a sleeper has woken up.
// Whoever waits for the library holds the queue meanwhile, and comes next.
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

std::size_t size_of(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::u8: return 1;
    case Hdf5Type::u16: return 2;
    case Hdf5Type::u32:
    case Hdf5Type::i32:
    case Hdf5Type::f32: return 4;
    case Hdf5Type::u64:
    case Hdf5Type::i64:
    case Hdf5Type::f64: return 8;
  }
  return 0;
}

const char* name_of(Hdf5Type type) {
  static constexpr std::array kNames{"u8", "u16", "u32", "u64", "i32", "i64", "f32", "f64"};
  return kNames[static_cast<std::size_t>(type)];
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

Hdf5File Hdf5File::create(const std::string& path) {
  const auto lock = lock_hdf5();
  Hdf5Handle creation = property_list(H5P_FILE_CREATE);
  HDF5_CHECK(ErrorKind::internal, "", H5Pset_obj_track_times(creation.id(), false));
  Hdf5Handle access = file_access();
  Hdf5Handle file(
      HDF5_CHECK(ErrorKind::filesystem, path, H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id())),
      H5Fclose);
  return {std::move(file), path, ErrorKind::filesystem};
}

Hdf5File Hdf5File::open(const std::string& path, ErrorKind kind) {
  check_signature(path, kind);
  const auto lock = lock_hdf5();
  Hdf5Handle access = file_access();
  Hdf5Handle file(HDF5_CHECK(kind, path, H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id())), H5Fclose);
  return {std::move(file), path, kind};
}

Hdf5File Hdf5File::open_for_update(const std::string& path) {
  check_signature(path, ErrorKind::filesystem);
  const auto lock = lock_hdf5();
  Hdf5Handle access = file_access();
  Hdf5Handle file(HDF5_CHECK(ErrorKind::filesystem, path, H5Fopen(path.c_str(), H5F_ACC_RDWR, access.id())), H5Fclose);
  return {std::move(file), path, ErrorKind::filesystem};
}

void Hdf5File::close() {
  const auto lock = lock_hdf5();
  if (!handle_.open()) return;
  HDF5_CHECK(kind_, path_, H5Fflush(handle_.id(), H5F_SCOPE_GLOBAL));
  HDF5_CHECK(kind_, path_, handle_.close());
}

// --- datasets ---------------------------------------------------------------------------------------------------

Hdf5Dataset Hdf5File::create_dataset(const std::string& name, Hdf5Type type, std::uint64_t elements,
                                     std::size_t chunk_bytes) {
  return create(name, type, elements, false, chunk_bytes);
}

Hdf5Dataset Hdf5File::create_growable_dataset(const std::string& name, Hdf5Type type, std::size_t chunk_bytes) {
  return create(name, type, 0, true, chunk_bytes);
}

Hdf5Dataset Hdf5File::create(const std::string& name, Hdf5Type type, std::uint64_t elements, bool growable,
                             std::size_t chunk_bytes) {
  internal_check(!name.empty() && name.find('/') == std::string::npos, "dataset names are flat");
  const auto lock = lock_hdf5();
  const std::string where = fmt::format("{}: /{}", path_, name);
  const hsize_t extent = elements, limit = growable ? H5S_UNLIMITED : elements;
  Hdf5Handle space(HDF5_CHECK(kind_, where, H5Screate_simple(1, &extent, &limit)), H5Sclose);
  Hdf5Handle creation = property_list(H5P_DATASET_CREATE);
  HDF5_CHECK(kind_, where, H5Pset_obj_track_times(creation.id(), false));
  if (growable || (elements > 0 && chunk_bytes > 0)) {  // HDF5 has no chunks for a dataset that is and stays empty
    hsize_t chunk = std::max<std::size_t>(1, chunk_bytes / size_of(type));
    if (!growable) chunk = std::min<hsize_t>(chunk, elements);
    HDF5_CHECK(kind_, where, H5Pset_chunk(creation.id(), 1, &chunk));
    HDF5_CHECK(kind_, where, H5Pset_fletcher32(creation.id()));
  }
  HDF5_CHECK(kind_, where, H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER));
  Hdf5Dataset dataset;
  dataset.handle_ = Hdf5Handle(HDF5_CHECK(kind_, where,
                                          H5Dcreate2(handle_.id(), name.c_str(), stored_type(type), space.id(),
                                                     H5P_DEFAULT, creation.id(), H5P_DEFAULT)),
                               H5Dclose);
  dataset.path_ = path_;
  dataset.name_ = name;
  dataset.kind_ = kind_;
  dataset.type_ = type;
  dataset.elements_ = elements;
  return dataset;
}

std::vector<std::string> Hdf5File::datasets() const {
  struct Found {
    std::vector<std::string> names;
    std::string other;  // the first thing that is not a plain link to a dataset
  } found;
  const auto visit = [](hid_t group, const char* name, const H5L_info_t* link, void* data) -> herr_t {
    auto& result = *static_cast<Found*>(data);
    H5O_info_t object{};
    const bool plain = link->type == H5L_TYPE_HARD &&
                       H5Oget_info_by_name2(group, name, &object, H5O_INFO_BASIC, H5P_DEFAULT) >= 0 &&
                       object.type == H5O_TYPE_DATASET;
    if (!plain) {
      result.other = name;
      return 1;
    }
    result.names.emplace_back(name);
    return 0;
  };
  const auto lock = lock_hdf5();
  HDF5_CHECK(kind_, path_, H5Literate(handle_.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &found));
  verify(found.other.empty(), kind_,
         "{}: /{} is not a dataset of this file (groups, soft and external links are refused)", path_, found.other);
  std::sort(found.names.begin(), found.names.end());
  return found.names;
}

bool Hdf5File::has_dataset(const std::string& name) const {
  const auto lock = lock_hdf5();
  return HDF5_CHECK(kind_, path_, H5Lexists(handle_.id(), name.c_str(), H5P_DEFAULT)) > 0;
}

Hdf5Dataset Hdf5File::open_dataset(const std::string& name) const {
  internal_check(!name.empty() && name.find('/') == std::string::npos, "dataset names are flat");
  const auto lock = lock_hdf5();
  verify(has_dataset(name), kind_, "{}: has no dataset /{}", path_, name);
  Hdf5Dataset dataset;
  dataset.path_ = path_;
  dataset.name_ = name;
  dataset.kind_ = kind_;
  const std::string where = dataset.where();
  H5L_info_t link{};
  HDF5_CHECK(kind_, where, H5Lget_info(handle_.id(), name.c_str(), &link, H5P_DEFAULT));
  verify(link.type == H5L_TYPE_HARD, kind_, "{}: a soft or external link, which is refused", where);
  H5O_info_t object{};
  HDF5_CHECK(kind_, where, H5Oget_info_by_name2(handle_.id(), name.c_str(), &object, H5O_INFO_BASIC, H5P_DEFAULT));
  verify(object.type == H5O_TYPE_DATASET, kind_, "{}: not a dataset", where);
  dataset.handle_ = Hdf5Handle(HDF5_CHECK(kind_, where, H5Dopen2(handle_.id(), name.c_str(), H5P_DEFAULT)), H5Dclose);

  Hdf5Handle type(HDF5_CHECK(kind_, where, H5Dget_type(dataset.handle_.id())), H5Tclose);
  const auto same = [&](Hdf5Type candidate) { return H5Tequal(type.id(), stored_type(candidate)) > 0; };
  const auto known = std::find_if(kTypes.begin(), kTypes.end(), same);
  verify(known != kTypes.end(), kind_,
         "{}: its element type is not one of u8 u16 u32 u64 i32 i64 f32 f64 (little endian)", where);
  dataset.type_ = *known;

  Hdf5Handle space(HDF5_CHECK(kind_, where, H5Dget_space(dataset.handle_.id())), H5Sclose);
  const bool line = H5Sget_simple_extent_type(space.id()) == H5S_SIMPLE && H5Sget_simple_extent_ndims(space.id()) == 1;
  verify(line, kind_, "{}: not one-dimensional", where);
  hsize_t extent = 0;
  HDF5_CHECK(kind_, where, H5Sget_simple_extent_dims(space.id(), &extent, nullptr));
  dataset.elements_ = extent;
  check_dataset(dataset);
  return dataset;
}

void Hdf5File::check_dataset(const Hdf5Dataset& dataset) const {
  const std::string where = dataset.where();
  const hid_t id = dataset.handle_.id();
  Hdf5Handle creation(HDF5_CHECK(kind_, where, H5Dget_create_plist(id)), H5Pclose);
  verify(HDF5_CHECK(kind_, where, H5Pget_external_count(creation.id())) == 0, kind_,
         "{}: its data lie in another file, which is refused", where);
  bool deflated = false;
  const int filters = HDF5_CHECK(kind_, where, H5Pget_nfilters(creation.id()));
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, configuration = 0;
    std::size_t values = 0;
    const H5Z_filter_t filter = HDF5_CHECK(
        kind_, where,
        H5Pget_filter2(creation.id(), static_cast<unsigned>(i), &flags, &values, nullptr, 0, nullptr, &configuration));
    const bool allowed =
        filter == H5Z_FILTER_FLETCHER32 || filter == H5Z_FILTER_SHUFFLE || filter == H5Z_FILTER_DEFLATE;
    verify(allowed, kind_, "{}: filter {} is refused (only shuffle, deflate and fletcher32 are read)", where,
           static_cast<int>(filter));
    deflated = deflated || filter == H5Z_FILTER_DEFLATE;
  }
  // No sum below can overflow: the extent is checked by division first.
  const std::uint64_t bytes_in_file = file_bytes(path_),
                      limit = deflated ? bytes_in_file * kMostDeflated : bytes_in_file;
  const std::uint64_t elements = dataset.elements_, size = size_of(dataset.type_);
  verify(elements <= limit / size, kind_, "{}: claims {} elements of {} bytes, more than the file of {} bytes can hold",
         where, elements, size, bytes_in_file);
  const H5D_layout_t layout = H5Pget_layout(creation.id());
  if (layout == H5D_CHUNKED) {
    hsize_t chunk = 0, chunks = 0;
    verify(H5Pget_chunk(creation.id(), 1, &chunk) == 1 && chunk > 0 && chunk <= kLargestChunkBytes / size, kind_,
           "{}: chunks of {} elements are refused (at most {} MiB)", where, chunk, kLargestChunkBytes >> 20);
    Hdf5Handle space(HDF5_CHECK(kind_, where, H5Dget_space(id)), H5Sclose);
    if (elements > 0) HDF5_CHECK(kind_, where, H5Dget_num_chunks(id, space.id(), &chunks));
    verify(chunks == (elements + chunk - 1) / chunk, kind_, "{}: {} of {} chunks are missing", where,
           (elements + chunk - 1) / chunk - std::min<std::uint64_t>(chunks, (elements + chunk - 1) / chunk),
           (elements + chunk - 1) / chunk);
  } else {
    verify(layout == H5D_CONTIGUOUS || layout == H5D_COMPACT, kind_, "{}: a virtual dataset, which is refused", where);
    verify(elements == 0 || H5Dget_storage_size(id) == elements * size, kind_, "{}: its data were never written",
           where);
  }
}

void Hdf5Dataset::append(const void* values, std::uint64_t count) {
  if (count == 0) return;
  const std::uint64_t first = elements_;
  {
    const auto lock = lock_hdf5();
    const hsize_t extent = elements_ + count;
    HDF5_CHECK(kind_, where(), H5Dset_extent(handle_.id(), &extent));
    elements_ = extent;
  }
  write(first, values, count);
}

void Hdf5Dataset::write(std::uint64_t first, const void* values, std::uint64_t count) {
  transfer(first, const_cast<void*>(values), count, true);
}

void Hdf5Dataset::read(std::uint64_t first, void* values, std::uint64_t count) const {
  transfer(first, values, count, false);
}

void Hdf5Dataset::close() {
  const auto lock = lock_hdf5();
  HDF5_CHECK(kind_, where(), H5Dflush(handle_.id()));
  HDF5_CHECK(kind_, where(), handle_.close());
}

void Hdf5Dataset::transfer(std::uint64_t first, void* values, std::uint64_t count, bool writing) const {
  internal_check(first <= elements_ && count <= elements_ - first, "access beyond the end of a dataset");
  const hid_t type =
      stored_type(type_);  // little endian on the file and, on every machine this is built for, in memory
  const std::uint64_t piece = kHdf5PieceBytes / size_of(type_);
  auto* position = static_cast<std::byte*>(values);
  while (count > 0) {
    const auto lock = lock_hdf5();
    const hsize_t start = first, length = std::min(count, piece);
    Hdf5Handle in_memory(HDF5_CHECK(kind_, where(), H5Screate_simple(1, &length, nullptr)), H5Sclose);
    Hdf5Handle in_file(HDF5_CHECK(kind_, where(), H5Dget_space(handle_.id())), H5Sclose);
    HDF5_CHECK(kind_, where(), H5Sselect_hyperslab(in_file.id(), H5S_SELECT_SET, &start, nullptr, &length, nullptr));
    if (writing) {
      HDF5_CHECK(kind_, where(), H5Dwrite(handle_.id(), type, in_memory.id(), in_file.id(), H5P_DEFAULT, position));
    } else {
      HDF5_CHECK(kind_, fmt::format("{}, elements {} to {}", where(), first, first + length - 1),
                 H5Dread(handle_.id(), type, in_memory.id(), in_file.id(), H5P_DEFAULT, position));
    }
    first += length;
    count -= length;
    position += length * size_of(type_);
  }
}

}  // namespace megatron
