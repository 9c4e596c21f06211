// The HDF5 layer: what is written comes back, and crafted or damaged files are refused before memory is spent on them.
#include <hdf5.h>
#include <sys/stat.h>

#include <numeric>
#include <thread>

#include "data/hdf5/hdf5_check.h"
#include "data/hdf5/hdf5_file.h"
#include "data/hdf5/hdf5_reader.h"
#include "support/data_support.h"
#include "support/file_size_limit.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Makes a file with raw HDF5 calls: `fill` gets the file's identifier.
template <class Fill>
std::string craft(const ShardFolder& folder, Fill&& fill) {
  const auto lock = lock_hdf5();
  const std::string path = folder.file("crafted.h5");
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  REQUIRE(file >= 0);
  fill(file);
  REQUIRE(H5Fclose(file) >= 0);
  H5Pclose(access);
  return path;
}

void refuse_dataset(const ShardFolder& folder, const std::string& reason, void (*fill)(hid_t)) {
  const std::string path = craft(folder, fill);
  require_error(ErrorKind::data, {path, "/x", reason}, [&] { Hdf5Reader(path, ErrorKind::data).open_dataset("x"); });
}

/// Makes a dataset /x of u16 without writing to it.
void add_dataset(hid_t file, hid_t type, hsize_t extent, hsize_t limit, hid_t creation) {
  const hid_t space = H5Screate_simple(1, &extent, &limit);
  H5Dclose(H5Dcreate2(file, "x", type, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  H5Sclose(space);
}

/// The same in chunks, of u16.
void add_chunks(hid_t file, hsize_t extent, hsize_t limit, hsize_t chunk, void (*filter)(hid_t)) {
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, 1, &chunk);
  filter(creation);
  add_dataset(file, H5T_STD_U16LE, extent, limit, creation);
  H5Pclose(creation);
}

void fletcher32(hid_t creation) {
  H5Pset_fletcher32(creation);
}

/// An older file, without hashes: /x in chunks of 100 u16 with fletcher32.
std::string make_unhashed(const ShardFolder& folder, std::vector<std::uint16_t> values) {
  static std::vector<std::uint16_t> all;
  all = std::move(values);
  return craft(folder, [](hid_t file) {
    add_chunks(file, all.size(), H5S_UNLIMITED, 100, fletcher32);
    const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    H5Dwrite(dataset, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data());
    H5Dclose(dataset);
  });
}

/// Writes bytes into a file where these bytes are.
void replace_bytes(const std::string& path, std::string_view from, std::string_view to) {
  std::string contents = contents_of(path);
  const std::size_t at = contents.find(from);
  REQUIRE(at != contents.npos);
  write_file(path, contents.replace(at, from.size(), to));
}

}  // namespace

TEST_CASE("HDF5: every type and attribute comes back", "[hdf5]") {
  ShardFolder folder;
  const std::string path = folder.file("all.h5");
  {
    Hdf5File file = Hdf5File::create(path);
    file.write_attribute("number", std::uint64_t{1} << 63);
    file.write_attribute("text", "a text");
    file.write_attribute("empty", "");
    file.write_attribute("number", std::uint64_t{7});  // overwritten
    const std::vector<float> floats{1.5f, -2, 3};
    Hdf5Dataset values = file.create_dataset("values.weight", Hdf5Type::f32, 3);
    values.write(0, floats.data(), 3);
    values.close();
    Hdf5Dataset grown = file.create_growable_dataset("grown", Hdf5Type::u64, 64);
    for (std::uint64_t i = 0; i < 100; ++i) grown.append(std::vector<std::uint64_t>{i, i * i});
    file.finish(grown);
    file.create_dataset("none", Hdf5Type::i32, 0);
    file.close();
  }
  const Hdf5Reader file(path, ErrorKind::checkpoint);
  CHECK(file.read_u64("number") == 7);
  CHECK(file.read_text("text") == "a text");
  CHECK(file.read_text("empty").empty());
  CHECK(file.datasets() == std::vector<std::string>{"grown", "none", "values.weight"});
  const Hdf5Array values = file.open_dataset("values.weight");
  CHECK(values.type() == Hdf5Type::f32);
  CHECK(values.read_all<float>() == std::vector<float>{1.5f, -2, 3});
  const std::vector<std::uint64_t> grown = file.open_dataset("grown").read_all<std::uint64_t>();
  REQUIRE(grown.size() == 200);
  CHECK(grown[199] == 99 * 99);
  CHECK(file.open_dataset("none").elements() == 0);
  require_error(ErrorKind::checkpoint, {path, "nothing"}, [&] { file.read_u64("nothing"); });
  require_error(ErrorKind::checkpoint, {path, "text"}, [&] { file.read_u64("text"); });
  require_error(ErrorKind::checkpoint, {path, "number"}, [&] { file.read_text("number"); });
  require_error(ErrorKind::checkpoint, {path, "/nothing"}, [&] { file.open_dataset("nothing"); });
  require_error(ErrorKind::internal, {}, [&] { values.read_all<std::int32_t>(); });
  require_error(ErrorKind::internal, {}, [&] {
    float value = 0;
    values.read(3, &value, 1);
  });
}

TEST_CASE("HDF5: data larger than one hold of the lock, from two threads", "[hdf5]") {
  ShardFolder folder;
  const auto work = [&](const std::string& name, std::int32_t start) {
    std::vector<std::int32_t> values((kHdf5BlockBytes / 4) * 2 + 12345);
    std::iota(values.begin(), values.end(), start);
    Hdf5File file = Hdf5File::create(folder.file(name));
    Hdf5Dataset dataset = file.create_dataset("v", Hdf5Type::i32, values.size());
    dataset.write(0, values.data(), values.size());
    file.close();
    return Hdf5Reader(folder.file(name), ErrorKind::data).open_dataset("v").read_all<std::int32_t>() == values;
  };
  bool first = false, second = false;
  std::thread other([&] { first = work("a.h5", 1); });
  second = work("b.h5", -77);
  other.join();
  CHECK(first);
  CHECK(second);
}

TEST_CASE("HDF5: the same contents are the same bytes", "[hdf5]") {
  ShardFolder folder;
  for (const char* name : {"a.h5", "b.h5"}) {
    Hdf5File file = Hdf5File::create(folder.file(name));
    file.write_attribute("n", std::uint64_t{1});
    Hdf5Dataset dataset = file.create_growable_dataset("x", Hdf5Type::u16);
    dataset.append(std::vector<std::uint16_t>(100000, 3));
    file.finish(dataset);
    file.close();
    if (*name == 'a')
      std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5's time stamps are in seconds
  }
  CHECK(contents_of(folder.file("a.h5")) == contents_of(folder.file("b.h5")));
}

TEST_CASE("HDF5_CHECK tells the call, the place and the library's reason", "[hdf5]") {
  const auto lock = lock_hdf5();
  require_error(ErrorKind::checkpoint, {"somewhere", "H5Dget_space", "identifier"},
                [] { HDF5_CHECK(ErrorKind::checkpoint, "somewhere", H5Dget_space(12345)); });
  CHECK(HDF5_CHECK(ErrorKind::checkpoint, "somewhere", 3) == 3);
}

TEST_CASE("HDF5: files that are none", "[hdf5][fault-55]") {
  ShardFolder folder;
  const auto open = [](const std::string& path) { Hdf5Reader(path, ErrorKind::data); };
  require_error(ErrorKind::data, {"no such", "No such file"}, [&] { open(folder.file("no such")); });
  require_error(ErrorKind::data, {"not a regular file"}, [&] { open(folder.path()); });
  for (const std::string& contents : {std::string(), std::string("hello"), std::string(5000, '\0')}) {
    write_file(folder.file("text"), contents);
    require_error(ErrorKind::data, {"text", "not an HDF5 file"}, [&] { open(folder.file("text")); });
  }
  write_file(folder.file("start"), "\211HDF\r\n\032\n\003 and then nonsense");
  require_error(ErrorKind::data, {"start"}, [&] { open(folder.file("start")); });
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  require_error(ErrorKind::data, {"pipe", "not a regular file"}, [&] { open(folder.file("pipe")); });
  require_error(ErrorKind::data, {"/dev/zero", "not a regular file"}, [&] { open("/dev/zero"); });
}

TEST_CASE("HDF5: crafted files are refused", "[hdf5][fault-51]") {
  ShardFolder folder;
  static const hsize_t kTwo[2] = {2, 2};
  refuse_dataset(folder, "soft or external link",
                 [](hid_t file) { H5Lcreate_external("/etc/passwd", "/x", file, "x", H5P_DEFAULT, H5P_DEFAULT); });
  refuse_dataset(folder, "soft or external link",
                 [](hid_t file) { H5Lcreate_soft("/x", file, "x", H5P_DEFAULT, H5P_DEFAULT); });
  refuse_dataset(folder, "not a dataset",
                 [](hid_t file) { H5Gclose(H5Gcreate2(file, "x", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)); });
  refuse_dataset(folder, "not one-dimensional", [](hid_t file) {
    const hid_t space = H5Screate_simple(2, kTwo, nullptr);
    H5Dclose(H5Dcreate2(file, "x", H5T_STD_U16LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
  });
  refuse_dataset(folder, "element type", [](hid_t file) { add_dataset(file, H5T_C_S1, 4, 4, H5P_DEFAULT); });
  refuse_dataset(folder, "element type", [](hid_t file) { add_dataset(file, H5T_STD_U16BE, 4, 4, H5P_DEFAULT); });
  refuse_dataset(folder, "never written", [](hid_t file) { add_dataset(file, H5T_STD_U16LE, 4, 4, H5P_DEFAULT); });
  refuse_dataset(folder, "more than the file",
                 [](hid_t file) { add_chunks(file, 1ull << 60, H5S_UNLIMITED, 1000, fletcher32); });
  refuse_dataset(folder, "never written", [](hid_t file) { add_chunks(file, 100, H5S_UNLIMITED, 10, fletcher32); });
  refuse_dataset(folder, "chunks of", [](hid_t file) { add_chunks(file, 100, H5S_UNLIMITED, 1 << 30, fletcher32); });
  refuse_dataset(folder, "did not grow", [](hid_t file) { add_chunks(file, 100, 100, 10, fletcher32); });
  refuse_dataset(folder, "without checksum",
                 [](hid_t file) { add_chunks(file, 100, H5S_UNLIMITED, 10, [](hid_t) {}); });
  for (const auto filter : {+[](hid_t creation) { H5Pset_scaleoffset(creation, H5Z_SO_INT, 4); },
                            +[](hid_t creation) { H5Pset_deflate(creation, 9); },
                            +[](hid_t creation) { H5Pset_fletcher32(creation), H5Pset_shuffle(creation); }}) {
    static void (*now)(hid_t) = nullptr;
    now = filter;
    refuse_dataset(folder, "filter", [](hid_t file) { add_chunks(file, 100, H5S_UNLIMITED, 10, now); });
  }
  refuse_dataset(folder, "another file", [](hid_t file) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(creation, "/etc/passwd", 0, 8);
    add_dataset(file, H5T_STD_U16LE, 4, 4, creation);
    H5Pclose(creation);
  });
  refuse_dataset(folder, "compact", [](hid_t file) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(creation, H5D_COMPACT);
    add_dataset(file, H5T_STD_U16LE, 4, 4, creation);
    H5Pclose(creation);
  });
  refuse_dataset(folder, "virtual", [](hid_t file) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t extent = 4;
    const hid_t space = H5Screate_simple(1, &extent, nullptr);
    H5Pset_virtual(creation, space, "pipe", "y", space);
    add_dataset(file, H5T_STD_U16LE, 4, 4, creation);
    H5Sclose(space);
    H5Pclose(creation);
  });
  const std::string path = craft(folder, [](hid_t file) {
    for (int i = 0; i < 9; ++i) {
      const hid_t space = H5Screate(H5S_SCALAR);
      H5Aclose(H5Acreate2(file, std::to_string(i).c_str(), H5T_STD_U64LE, space, H5P_DEFAULT, H5P_DEFAULT));
      H5Sclose(space);
    }
  });
  require_error(ErrorKind::data, {path, "too many"}, [&] { Hdf5Reader(path, ErrorKind::data); });
}

TEST_CASE("HDF5: two names of one dataset are refused", "[hdf5][fault-51]") {
  const ShardFolder folder;
  const std::string path = craft(folder, [](hid_t file) {
    add_dataset(file, H5T_STD_U16LE, 4, 4, H5P_DEFAULT);
    H5Lcreate_hard(file, "x", file, "y", H5P_DEFAULT, H5P_DEFAULT);
  });
  require_error(ErrorKind::data, {path}, [&] { Hdf5Reader(path, ErrorKind::data); });
}

TEST_CASE("HDF5: a list of chunks of every size is read", "[hdf5]") {
  const ShardFolder folder;
  // The list's blocks: in the index; in data blocks; below secondary blocks; in pages (from 131060 chunks on).
  for (const std::uint64_t chunks : {1u, 4u, 5u, 52u, 53u, 244u, 5000u, 132000u}) {
    std::vector<std::uint64_t> values(chunks * 2 - 1);
    std::iota(values.begin(), values.end(), 77);
    Hdf5File file = Hdf5File::create(folder.file("many.h5"));
    Hdf5Dataset dataset = file.create_growable_dataset("x", Hdf5Type::u64, 16);
    // By pieces: the library takes memory for every chunk of one call, and keeps it.
    for (std::size_t first = 0; first < values.size(); first += 4096) {
      dataset.append(values.data() + first, std::min<std::size_t>(4096, values.size() - first));
    }
    file.finish(dataset);
    file.close();
    const Hdf5Array array = Hdf5Reader(folder.file("many.h5"), ErrorKind::data).open_dataset("x");
    INFO(chunks << " chunks");
    CHECK(array.hashed());
    CHECK((array.read_all<std::uint64_t>() == values));
    CHECK(array.read_all<std::uint64_t>().back() == values.back());
    std::uint64_t middle = 0;
    array.read(values.size() / 2, &middle, 1);
    CHECK(middle == values[values.size() / 2]);
  }
}

TEST_CASE("HDF5: a chunk of zeros is damage, with and without hashes", "[hdf5][fault-54]") {
  const ShardFolder folder;
  std::vector<std::uint16_t> values(250, 0x6161);
  const std::string old = make_unhashed(folder, values), first(200, 'a');
  CHECK_FALSE(Hdf5Reader(old, ErrorKind::data).open_dataset("x").hashed());
  CHECK((Hdf5Reader(old, ErrorKind::data).open_dataset("x").read_all<std::uint16_t>() == values));
  const auto read = [](const std::string& path) {
    return [path] { Hdf5Reader(path, ErrorKind::data).open_dataset("x").read_all<std::uint16_t>(); };
  };
  replace_bytes(old, "aaaa", "aaba");
  require_error(ErrorKind::data, {old, "/x", "elements 0 to 99", "checksum"}, read(old));
  make_unhashed(folder, values);
  const std::size_t at = contents_of(old).find(first);
  replace_bytes(old, contents_of(old).substr(at, 204), std::string(204, '\0'));  // its fletcher32 is right
  require_error(ErrorKind::data, {old, "/x", "elements 0 to 99", "lost data"}, read(old));

  const std::string path = folder.file("hashed.h5");
  Hdf5File file = Hdf5File::create(path);
  Hdf5Dataset dataset = file.create_growable_dataset("x", Hdf5Type::u16, 200);
  dataset.append(values);
  dataset.append(std::vector<std::uint16_t>(250, 0));  // zeros that were meant
  file.finish(dataset);
  file.close();
  CHECK_NOTHROW(read(path)());
  const Hdf5Array open = Hdf5Reader(path, ErrorKind::data).open_dataset("x");
  replace_bytes(path, contents_of(path).substr(contents_of(path).find(first), 204), std::string(204, '\0'));
  require_error(ErrorKind::data, {path, "/x", "elements 0 to 99", "not what was written"}, read(path));
  // A file that is open is read as it is now.
  require_error(ErrorKind::data, {path, "elements 0 to 99"}, [&] { open.read_all<std::uint16_t>(); });
  write_file(path, "");
  require_error(ErrorKind::data, {path, "ends at byte"}, [&] { open.read_all<std::uint16_t>(); });
}

TEST_CASE("HDF5: a full disk is a filesystem error, and the next file is fine", "[hdf5]") {
  ShardFolder folder;
  const std::vector<std::uint16_t> values(4 << 20, 7);
  require_error(ErrorKind::filesystem, {"File too large", "big.h5"}, [&] {
    const FileSizeLimit limit(100000);
    Hdf5File file = Hdf5File::create(folder.file("big.h5"));
    file.create_growable_dataset("x", Hdf5Type::u16).append(values);
    file.close();
  });
  Hdf5File file = Hdf5File::create(folder.file("next.h5"));
  file.create_growable_dataset("x", Hdf5Type::u16).append(values);
  file.close();
  CHECK(Hdf5Reader(folder.file("next.h5"), ErrorKind::data).open_dataset("x").elements() == values.size());
}
