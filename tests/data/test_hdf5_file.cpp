// The HDF5 layer: what is written comes back, and crafted or damaged files are refused before memory is spent on them.
#include <hdf5.h>
#include <numeric>
#include <thread>

#include "data_support.h"
#include "hdf5/hdf5_check.h"
#include "hdf5/hdf5_file.h"
#include "support/file_size_limit.h"

using namespace megatron;
using namespace megatron::test;

// HDF5 1.10 loses some memory of its own on damaged files; the leak sanitizer asks here what it should overlook.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libhdf5";
}

namespace {

/// Makes a file with raw HDF5 calls: `fill` gets the file's identifier.
template <class Fill>
std::string craft(const ShardFolder& folder, Fill&& fill) {
  const auto lock = lock_hdf5();
  const std::string path = folder.file("crafted.h5");
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(file >= 0);
  fill(file);
  REQUIRE(H5Fclose(file) >= 0);
  return path;
}

void refuse_dataset(const ShardFolder& folder, const std::string& reason, void (*fill)(hid_t)) {
  const std::string path = craft(folder, fill);
  require_error(ErrorKind::data, {path, "/x", reason},
                [&] { Hdf5File::open(path, ErrorKind::data).open_dataset("x"); });
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
    file.write_attribute("half", 0.5);
    file.write_attribute("shape", std::vector<std::uint64_t>{3, 1ull << 40});
    file.write_attribute("number", std::uint64_t{7});  // overwritten
    const std::vector<float> floats{1.5f, -2, 3};
    Hdf5Dataset values = file.create_dataset("values.weight", Hdf5Type::f32, 3);
    values.write(0, floats.data(), 3);
    values.write_attribute("offset", std::uint64_t{5});
    Hdf5Dataset grown = file.create_growable_dataset("grown", Hdf5Type::u64, 64);
    for (std::uint64_t i = 0; i < 100; ++i) grown.append(std::vector<std::uint64_t>{i, i * i});
    file.create_dataset("none", Hdf5Type::i32, 0);
    file.close();
  }
  const Hdf5File file = Hdf5File::open(path, ErrorKind::checkpoint);
  CHECK(file.read_u64("number") == 7);
  CHECK(file.read_text("text") == "a text");
  CHECK(file.read_text("empty").empty());
  CHECK(file.read_f64("half") == 0.5);
  CHECK(file.read_u64s("shape") == std::vector<std::uint64_t>{3, 1ull << 40});
  CHECK(file.datasets() == std::vector<std::string>{"grown", "none", "values.weight"});
  const Hdf5Dataset values = file.open_dataset("values.weight");
  CHECK(values.type() == Hdf5Type::f32);
  CHECK(values.read_all<float>() == std::vector<float>{1.5f, -2, 3});
  CHECK(values.read_u64("offset") == 5);
  const std::vector<std::uint64_t> grown = file.open_dataset("grown").read_all<std::uint64_t>();
  REQUIRE(grown.size() == 200);
  CHECK(grown[199] == 99 * 99);
  CHECK(file.open_dataset("none").elements() == 0);
  require_error(ErrorKind::checkpoint, {path, "nothing"}, [&] { file.read_u64("nothing"); });
  require_error(ErrorKind::checkpoint, {path, "text"}, [&] { file.read_u64("text"); });
  require_error(ErrorKind::checkpoint, {path, "shape"}, [&] { file.read_u64("shape"); });
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
    std::vector<std::int32_t> values((kHdf5PieceBytes / 4) * 2 + 12345);
    std::iota(values.begin(), values.end(), start);
    Hdf5File file = Hdf5File::create(folder.file(name));
    Hdf5Dataset dataset = file.create_dataset("v", Hdf5Type::i32, values.size(), std::size_t{1} << 20);
    dataset.write(0, values.data(), values.size());
    file.close();
    return Hdf5File::open(folder.file(name), ErrorKind::data).open_dataset("v").read_all<std::int32_t>() == values;
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
    file.create_growable_dataset("x", Hdf5Type::u16).append(std::vector<std::uint16_t>(100000, 3));
    file.close();
    if (*name == 'a')
      std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5's time stamps are in seconds
  }
  CHECK(contents_of(folder.file("a.h5")) == contents_of(folder.file("b.h5")));
}

TEST_CASE("HDF5_CHECK tells the call, the place and the library's reason", "[hdf5]") {
  const auto lock = lock_hdf5();
  require_error(ErrorKind::checkpoint, {"somewhere", "H5Dget_space", "invalid dataset identifier"},
                [] { HDF5_CHECK(ErrorKind::checkpoint, "somewhere", H5Dget_space(12345)); });
  CHECK(HDF5_CHECK(ErrorKind::checkpoint, "somewhere", 3) == 3);
}

TEST_CASE("HDF5: files that are none", "[hdf5]") {
  ShardFolder folder;
  const auto open = [](const std::string& path) { Hdf5File::open(path, ErrorKind::data); };
  require_error(ErrorKind::data, {"no such", "No such file"}, [&] { open(folder.file("no such")); });
  require_error(ErrorKind::data, {"not a regular file"}, [&] { open(folder.path()); });
  for (const std::string& contents : {std::string(), std::string("hello"), std::string(5000, '\0')}) {
    write_file(folder.file("text"), contents);
    require_error(ErrorKind::data, {"text", "not an HDF5 file"}, [&] { open(folder.file("text")); });
  }
  write_file(folder.file("start"), "\211HDF\r\n\032\n\003 and then nonsense");
  require_error(ErrorKind::data, {"start"}, [&] { open(folder.file("start")); });
}

TEST_CASE("HDF5: crafted files are refused", "[hdf5]") {
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
  const auto one_dimensional = [](hid_t file, hid_t type, hsize_t extent, hid_t creation) {
    const hid_t space = H5Screate_simple(1, &extent, nullptr);
    H5Dclose(H5Dcreate2(file, "x", type, space, H5P_DEFAULT, creation, H5P_DEFAULT));
    H5Sclose(space);
  };
  static const auto dataset = one_dimensional;
  refuse_dataset(folder, "element type", [](hid_t file) { dataset(file, H5T_C_S1, 4, H5P_DEFAULT); });
  refuse_dataset(folder, "element type", [](hid_t file) { dataset(file, H5T_STD_U16BE, 4, H5P_DEFAULT); });
  refuse_dataset(folder, "never written", [](hid_t file) { dataset(file, H5T_STD_U16LE, 4, H5P_DEFAULT); });
  const auto chunked = [](hid_t file, hsize_t extent, hsize_t chunk, void (*filter)(hid_t)) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 1, &chunk);
    filter(creation);
    dataset(file, H5T_STD_U16LE, extent, creation);
    H5Pclose(creation);
  };
  static const auto chunks = chunked;
  refuse_dataset(folder, "more than the file", [](hid_t file) { chunks(file, 1ull << 60, 1000, [](hid_t) {}); });
  refuse_dataset(folder, "are missing", [](hid_t file) { chunks(file, 100, 10, [](hid_t) {}); });
  refuse_dataset(folder, "chunks of", [](hid_t file) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk = 1 << 30, extent = 100, limit = H5S_UNLIMITED;
    H5Pset_chunk(creation, 1, &chunk);
    const hid_t space = H5Screate_simple(1, &extent, &limit);
    H5Dclose(H5Dcreate2(file, "x", H5T_STD_U16LE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
    H5Sclose(space);
    H5Pclose(creation);
  });
  refuse_dataset(folder, "filter", [](hid_t file) {
    chunks(file, 100, 10, [](hid_t creation) { H5Pset_scaleoffset(creation, H5Z_SO_INT, 4); });
  });
  refuse_dataset(folder, "another file", [](hid_t file) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(creation, "/etc/passwd", 0, 8);
    dataset(file, H5T_STD_U16LE, 4, creation);
    H5Pclose(creation);
  });
  const std::string path =
      craft(folder, [](hid_t file) { H5Lcreate_soft("/", file, "around", H5P_DEFAULT, H5P_DEFAULT); });
  require_error(ErrorKind::data, {"/around", "not a dataset"},
                [&] { Hdf5File::open(path, ErrorKind::data).datasets(); });
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
  CHECK(Hdf5File::open(folder.file("next.h5"), ErrorKind::data).open_dataset("x").elements() == values.size());
}
