#include "data/duplicates/signature_file.h"

#include "support/catch.h"
#include "support/file_size_limit.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

namespace megatron::test {

namespace {

using FileRecords = std::vector<std::vector<std::uint64_t>>;

void write_records(const std::string& path, const FileRecords& records, std::size_t block_bytes = 64) {
  SignatureFileWriter writer(path, 2, block_bytes);
  for (const auto& record : records) writer.append(record);
  writer.finish();
}

FileRecords read_records(const std::string& path, std::size_t words = 2) {
  SignatureFileReader reader(path, words);
  FileRecords records;
  for (auto record = reader.next(); !record.empty(); record = reader.next()) {
    records.emplace_back(record.begin(), record.end());
  }
  CHECK(records.size() == reader.records());
  return records;
}

FileRecords counted(std::uint64_t count) {
  FileRecords records;
  for (std::uint64_t i = 0; i < count; ++i) records.push_back({i / 3, i});
  return records;
}

}  // namespace

TEST_CASE("signature file: what was written is read") {
  TemporaryFolder folder;
  for (const std::uint64_t count : {0, 1, 3, 4, 5, 8, 1000}) {  // four records per block
    const std::string path = folder.file(std::to_string(count));
    write_records(path, counted(count));
    CHECK(read_records(path) == counted(count));
  }
}

TEST_CASE("signature file: each damaged byte is found") {
  TemporaryFolder folder;
  const std::string path = folder.file("records");
  write_records(path, counted(9));
  const std::string good = contents_of(path);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    write_file(path, bad);
    INFO("byte " << i);
    require_error(ErrorKind::data, {path}, [&] { read_records(path); });
  }
}

TEST_CASE("signature file: blocks in each other's place are found") {
  TemporaryFolder folder;
  const std::string path = folder.file("records");
  write_records(path, FileRecords(8, {5, 5}));  // two blocks of the same records
  std::string bytes = contents_of(path);
  const std::string first = bytes.substr(40, 72), second = bytes.substr(112, 72);
  bytes.replace(40, 72, second).replace(112, 72, first);
  write_file(path, bytes);
  require_error(ErrorKind::data, {path, "byte 40", "checksum"}, [&] { read_records(path); });
}

TEST_CASE("signature file: a file cut off or longer is refused at once") {
  TemporaryFolder folder;
  const std::string path = folder.file("records");
  write_records(path, counted(9));
  const std::string good = contents_of(path);
  for (std::size_t bytes = 0; bytes < good.size(); bytes += 8) {
    write_file(path, good.substr(0, bytes));
    require_error(ErrorKind::data, {path}, [&] { SignatureFileReader(path, 2); });
  }
  write_file(path, good + "12345678");
  require_error(ErrorKind::data, {path, "9 records take"}, [&] { SignatureFileReader(path, 2); });
}

TEST_CASE("signature file: one that was never finished is refused") {
  TemporaryFolder folder;
  const std::string path = folder.file("records");
  SignatureFileWriter writer(path, 2, 64);
  for (const auto& record : counted(100)) writer.append(record);
  require_error(ErrorKind::data, {path, "never finished"}, [&] { SignatureFileReader(path, 2); });
}

TEST_CASE("signature file: one that is given up leaves no file") {
  TemporaryFolder folder;
  { SignatureFileWriter writer(folder.file("records"), 2, 64); }
  CHECK(folder.files().empty());
}

TEST_CASE("signature file: records of another size or order are refused") {
  TemporaryFolder folder;
  const std::string path = folder.file("records");
  write_records(path, counted(9));
  require_error(ErrorKind::data, {path, "2 words per record", "3 words were written"},
                [&] { SignatureFileReader(path, 3); });
  for (const std::size_t wrong : {2, 4}) {  // inside a block, and at the beginning of one
    FileRecords records = counted(9);
    records[wrong] = {0, 0};
    const std::string unsorted = folder.file("unsorted" + std::to_string(wrong));
    write_records(unsorted, records);
    require_error(ErrorKind::data, {unsorted, "record " + std::to_string(wrong) + " is less"},
                  [&] { read_records(unsorted); });
  }
}

TEST_CASE("signature file: a full disk is an error that names the file") {
  TemporaryFolder folder;
  const std::string path = folder.file("records");
  const FileSizeLimit limit(200);
  require_error(ErrorKind::filesystem, {"cannot write " + path}, [&] { write_records(path, counted(1000)); });
  CHECK(folder.files().empty());
}

TEST_CASE("signature file: taken names and missing folders are errors") {
  TemporaryFolder folder;
  write_file(folder.file("taken"), "mine");
  require_error(ErrorKind::filesystem, {folder.file("taken")}, [&] { write_records(folder.file("taken"), {}); });
  CHECK(contents_of(folder.file("taken")) == "mine");
  require_error(ErrorKind::filesystem, {folder.file("none/records")},
                [&] { write_records(folder.file("none/records"), {}); });
  require_error(ErrorKind::data, {folder.file("missing")}, [&] { read_records(folder.file("missing")); });
  require_error(ErrorKind::data, {folder.path(), "not a regular file"}, [&] { read_records(folder.path()); });
}

}  // namespace megatron::test
