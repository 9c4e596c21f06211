// Files that belong together take their names all or none, whatever was there before.
#include "base/system/durable_file.h"

#include <fcntl.h>

#include <cstdio>
#include <functional>

#include "data/indexed/indexed_reader.h"
#include "data/indexed/indexed_writer.h"
#include "support/data_support.h"
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

/// Standard error goes to a file while this lives.
class RedirectedError {
 public:
  explicit RedirectedError(const std::string& path) : former_(::dup(STDERR_FILENO)) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(file, STDERR_FILENO);
    ::close(file);
  }
  ~RedirectedError() {
    std::fflush(stderr);
    ::dup2(former_, STDERR_FILENO);
    ::close(former_);
  }
  RedirectedError(const RedirectedError&) = delete;
  RedirectedError& operator=(const RedirectedError&) = delete;

 private:
  int former_;
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
  for (const std::string& name : {older.a, older.b, older.folder.file("d")}) CHECK(contents_of(name) == "new " + name);
  CHECK(contents_of(older.folder.file("c")) == "another");
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
  fails({"cannot rename", temporary_name(older.b)},
        [&](Publication&) { std::filesystem::remove(temporary_name(older.b)); });
  fails({"a folder has this name"}, [&](Publication& files) {
    std::filesystem::create_directories(older.folder.file("d"));
    files.write(older.folder.file("d"), "new d");
  });
  fails({"cannot write " + temporary_name(older.folder.file("c")) + ": File too large", "ulimit -f"},
        [&](Publication& files) {
          const FileSizeLimit limit(1000);
          files.write(older.folder.file("c"), std::string(2000, 'c'));
        });
}

TEST_CASE("publication: leftovers of killed ones stay until the next complete one", "[durable][fault]") {
  const OlderFiles older;
  const std::vector<std::string> left{older.a + ".replaced", older.a + ".replaced2", older.folder.file("d.replaced")};
  for (const std::string& name : left) write_file(name, "left as " + name);
  const auto write = [&](Publication& files) {
    for (const std::string& name : {older.a, older.b, older.folder.file("d")}) files.write(name, "new " + name);
  };
  for (const bool published : {false, true}) {
    CAPTURE(published);
    Publication files;
    write(files);
    if (!published) std::filesystem::remove(temporary_name(older.b));
    if (!published)
      require_error(ErrorKind::filesystem, {"cannot rename", temporary_name(older.b)}, [&] { files.publish(); });
    if (published) files.publish();
    CHECK(contents_of(older.a + ".replaced3") == "older a");
    files.discard();
    CHECK(older.folder.files() == Names{"a", "a.replaced", "a.replaced2", "b", "d.replaced"});
    CHECK(contents_of(older.a) == "older a");
    CHECK(contents_of(older.b) == "older b");
    for (const std::string& name : left) CHECK(contents_of(name) == "left as " + name);
  }
  Publication files;
  write(files);
  files.publish();
  files.commit();
  CHECK(older.folder.files() == Names{"a", "b", "d"});
  CHECK(contents_of(older.a) == "new " + older.a);
}

TEST_CASE("output: replaces a file only by force and never an input or via a link", "[durable][fault][fault-91]") {
  const ShardFolder folder;
  const std::string path = folder.file("new"), link = folder.file("link"), input = folder.file("input");
  write_file(input, "input");
  std::filesystem::create_symlink("input", link);
  const auto write = [&](const std::string& name, bool force) {
    write_output({.option = "--output", .path = name, .force = force, .inputs = {input}}, force ? "second" : "first");
  };
  write("", true);  // none
  write(path, false);
  CHECK(contents_of(path) == "first");
  require_error(ErrorKind::configuration, {"--output " + path + ": there is such a file", "--force"},
                [&] { write(path, false); });
  CHECK(contents_of(path) == "first");
  write(path, true);
  CHECK(contents_of(path) == "second");
  for (const std::string& same : {input, folder.path() + "/./input"}) {
    require_error(ErrorKind::configuration, {"a file that this command reads"}, [&] { write(same, true); });
  }
  require_error(ErrorKind::filesystem, {"--output " + link + " is a symbolic link"}, [&] { write(link, true); });
  require_error(ErrorKind::filesystem, {"is a folder"}, [&] { write(folder.path(), true); });
  require_error(ErrorKind::filesystem, {"is not a regular file"}, [&] { write("/dev/null", true); });
  require_error(ErrorKind::filesystem, {"there is no folder", "no; make it first"}, [&] {
    check_output({"--output", folder.file("no/new")});
  });
  {
    const FileSizeLimit limit(3);  // as a disk that is full
    require_error(ErrorKind::filesystem, {"cannot write", "File too large"}, [&] { write(path, true); });
    require_error(ErrorKind::filesystem, {"cannot write"}, [&] { write(folder.file("none"), false); });
    require_error(ErrorKind::filesystem, {"cannot write"}, [&] { replace_file(path, "third"); });
  }
  CHECK(contents_of(path) == "second");
  CHECK(contents_of(input) == "input");
  CHECK(folder.files() == Names{"input", "link", "new"});  // no temporary file is left
}

TEST_CASE("output: a file that comes while another is written is not replaced", "[durable][fault][fault-91]") {
  const ShardFolder folder;
  const std::string path = folder.file("new"), temporary = folder.file("temporary");
  check_output({"--output", path});
  write_file(path, "another's");
  write_file(temporary, "mine");
  require_error(ErrorKind::configuration, {"there is such a file"}, [&] {
    publish_output(temporary, {"--output", path});
  });
  CHECK(contents_of(path) == "another's");
  CHECK(folder.files() == Names{"new"});
}

TEST_CASE("replacing a file: a link is replaced and not followed", "[durable][fault]") {
  const ShardFolder folder;
  write_file(folder.file("a"), "a user's");
  std::filesystem::create_symlink("a", folder.file("link"));
  replace_file_durably(folder.file("link"), "new");
  CHECK(contents_of(folder.file("a")) == "a user's");
  CHECK(contents_of(folder.file("link")) == "new");
  CHECK_FALSE(std::filesystem::is_symlink(folder.file("link")));
}

TEST_CASE("temporary files: those of killed processes go away and no others", "[durable][fault]") {
  const ShardFolder folder;
  const Names others{"b.0123abcd.tmp", "x", "x.0123ABCD.tmp", "x.0123abcd.tmp2", "x.1.tmp", "x.tmp", "xy.0123abcd.tmp"};
  for (const std::string& name : others) write_file(folder.file(name), "a user's");
  write_file(folder.file("x.0123abcd.tmp"), "left");
  write_file(temporary_name(folder.file("y")), "left");
  remove_temporaries({folder.file("x"), folder.file("y")});
  CHECK(folder.files() == others);
}

TEST_CASE("publication: what cannot be looked at is not taken for absent", "[durable][fault]") {
  const OlderFiles older;
  std::filesystem::create_symlink("loop", older.folder.file("loop"));
  Publication files;
  write_file(older.folder.file("c.tmp"), "new");
  files.add(older.folder.file("c.tmp"), older.folder.file("loop/c"));
  require_error(ErrorKind::filesystem, {"loop/c: cannot look at it", "the path that the link leads to"},
                [&] { files.publish(); });
  files.discard();
  std::filesystem::remove(older.folder.file("loop"));
  older.require_as_before();
}

TEST_CASE("publication: what cannot be put back is said, with the name it has", "[durable][fault]") {
  const OlderFiles older;
  const std::string said = older.folder.file("said");
  Publication files;
  files.write(older.a, "new a");
  files.publish();
  std::filesystem::remove(older.a);
  std::filesystem::create_directories(older.a);
  {
    const RedirectedError redirected(said);
    files.discard();
  }
  CHECK(contents_of(said).find("a.replaced cannot have its name " + older.a + " back: Is a directory") !=
        std::string::npos);
  CHECK(contents_of(older.a + ".replaced") == "older a");
}

TEST_CASE("indexed files: old ones stay if new ones cannot take both names", "[durable][fault]") {
  const ShardFolder folder;
  const auto write = [&](bool overwrite) {
    IndexedWriter writer(folder.file("x"), IndexedType::u16);
    writer.add_document(std::vector<std::int32_t>{1, 2, 3});
    writer.finish(overwrite);
  };
  write_file(folder.file("x.bin"), "older");
  write_file(folder.file("x.bin.replaced"), "of a killed run");
  std::filesystem::create_directories(folder.file("x.idx"));
  require_error(ErrorKind::configuration, {"x.bin is there already", "--overwrite"}, [&] { write(false); });
  require_error(ErrorKind::filesystem, {"x.idx: cannot write it"}, [&] { write(true); });
  CHECK(folder.files() == Names{"x.bin", "x.bin.replaced"});
  CHECK(contents_of(folder.file("x.bin")) == "older");
  std::filesystem::remove(folder.file("x.idx"));
  write(true);
  write(false);  // equal ones
  CHECK(folder.files() == Names{"x.bin", "x.idx"});
  CHECK(IndexedReader(folder.file("x")).tokens() == 3);
}
