// Files that belong together take their names all or none, whatever was there before.
#include "hdf5/durable_file.h"

#include <functional>

#include "data/indexed_reader.h"
#include "data/indexed_writer.h"
#include "data_support.h"
#include "support/file_size_limit.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Names = std::vector<std::string>;

/// A folder with older files a and b.
struct OlderFiles {
  ShardFolder folder;
  std::string a = folder.file("a"), b = folder.file("b");

  OlderFiles() {
    write_file(a, "older a");
    write_file(b, "older b");
  }
  void require_as_before() const {
    CHECK(folder.files() == Names{"a", "b"});
    CHECK(contents_of(a) == "older a");
    CHECK(contents_of(b) == "older b");
  }
};

}  // namespace

TEST_CASE("publication: new files take the place of older ones, or of nothing", "[durable]") {
  const OlderFiles older;
  write_file(older.folder.file("c"), "another");
  Publication files;
  for (const std::string& name : {older.a, older.b, older.folder.file("d")}) files.write(name, "new " + name);
  CHECK(contents_of(older.a) == "older a");
  files.publish();
  files.commit();
  CHECK(older.folder.files() == Names{"a", "b", "c", "d"});
  for (const std::string& name : {older.a, older.b, older.folder.file("d")}) CHECK(contents_of(name) == "new " + name);
  files.write(older.a, "not published");
  files.discard();
  CHECK(older.folder.files() == Names{"a", "b", "c", "d"});
}

TEST_CASE("publication: what is not committed leaves no trace", "[durable][fault]") {
  const OlderFiles older;
  {
    Publication files;
    for (const std::string& name : {older.a, older.folder.file("c"), older.b}) files.write(name, "new");
    files.publish();
    CHECK(contents_of(older.b) == "new");
    CHECK(contents_of(older.folder.file("c")) == "new");
  }
  older.require_as_before();
}

TEST_CASE("publication: one that fails half-way leaves what was there", "[durable][fault]") {
  const OlderFiles older;
  const auto fails = [&](const std::vector<std::string>& parts, const std::function<void(Publication&)>& spoil) {
    require_error(ErrorKind::filesystem, parts, [&] {
      Publication files;
      files.write(older.a, "new a");
      files.write(older.b, "new b");
      spoil(files);
      files.publish();
    });
    older.require_as_before();
  };
  fails({"cannot rename", "b.tmp"}, [&](Publication&) { std::filesystem::remove(older.b + ".tmp"); });
  fails({"a folder has this name"}, [&](Publication& files) {
    std::filesystem::create_directories(older.folder.file("d"));
    files.write(older.folder.file("d"), "new d");
  });
  fails({"c.tmp: cannot write it"}, [&](Publication& files) {
    const FileSizeLimit limit(1000);
    files.write(older.folder.file("c"), std::string(2000, 'c'));
  });
}

TEST_CASE("indexed files: older ones are what they were if new ones cannot take both names", "[durable][fault]") {
  const ShardFolder folder;
  const auto write = [&] {
    IndexedWriter writer(folder.file("x"), IndexedType::u16);
    writer.add_document(std::vector<std::int32_t>{1, 2, 3});
    writer.finish();
  };
  write_file(folder.file("x.bin"), "older");
  std::filesystem::create_directories(folder.file("x.idx"));
  require_error(ErrorKind::filesystem, {"x.idx: cannot write it"}, write);
  CHECK(folder.files() == Names{"x.bin"});
  CHECK(contents_of(folder.file("x.bin")) == "older");
  std::filesystem::remove(folder.file("x.idx"));
  write();
  CHECK(folder.files() == Names{"x.bin", "x.idx"});
  CHECK(IndexedReader(folder.file("x")).tokens() == 3);
}
