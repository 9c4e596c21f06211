#include "data/duplicates/record_sorter.h"

#include <algorithm>
#include <filesystem>

#include "data/cleaning/cleaning_support.h"
#include "support/catch.h"
#include "support/file_size_limit.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

namespace megatron::test {

namespace {

using Records = std::vector<std::array<std::uint64_t, 2>>;

Records some_records(std::size_t count) {
  Numbers numbers(count);
  Records records;
  for (std::size_t i = 0; i < count; ++i) records.push_back({numbers.below(1000), numbers.below(1000)});
  return records;
}

Records all_of(RecordSorter<2>& sorter) {
  Records sorted;
  sorter.sort();
  for (std::array<std::uint64_t, 2> record; sorter.next(record);) sorted.push_back(record);
  return sorted;
}

}  // namespace

TEST_CASE("record sorter: any number of records, in memory and by files") {
  TemporaryFolder folder;
  // 1792 records fit in memory; 7 files are merged at once, so that the last ones take three rounds.
  for (const std::size_t count : {0, 1, 1792, 1793, 12544, 12545, 40000, 200000}) {
    RecordSorter<2> sorter(folder.file("run"), kLeastSorterBytes);
    Records records = some_records(count);
    for (const auto& record : records) sorter.add(record);
    std::sort(records.begin(), records.end());
    INFO(count << " records");
    CHECK(all_of(sorter) == records);
    CHECK(sorter.records() == count);
    CHECK((sorter.files() > 0) == (count > 1792));
    CHECK(folder.files().empty());
    std::array<std::uint64_t, 2> record;
    CHECK_FALSE(sorter.next(record));
  }
}

TEST_CASE("record sorter: its files go with it") {
  TemporaryFolder folder;
  {
    RecordSorter<2> sorter(folder.file("run"), kLeastSorterBytes);
    for (const auto& record : some_records(10000)) sorter.add(record);
    CHECK(folder.files().size() == 5);
  }
  CHECK(folder.files().empty());
}

TEST_CASE("record sorter: damage to one of its files is an error") {
  TemporaryFolder folder;
  RecordSorter<2> sorter(folder.file("run"), kLeastSorterBytes);
  for (const auto& record : some_records(10000)) sorter.add(record);
  std::string bytes = contents_of(folder.file("run-2"));
  bytes[bytes.size() / 2] ^= 1;
  write_file(folder.file("run-2"), bytes);
  require_error(ErrorKind::data, {folder.file("run-2"), "damaged"}, [&] { all_of(sorter); });
}

TEST_CASE("record sorter: a full disk is an error, and leaves nothing") {
  TemporaryFolder folder;
  {
    const FileSizeLimit limit(10000);
    RecordSorter<2> sorter(folder.file("run"), kLeastSorterBytes);
    require_error(ErrorKind::filesystem, {"cannot write " + folder.file("run-0")}, [&] {
      for (const auto& record : some_records(10000)) sorter.add(record);
    });
  }
  CHECK(folder.files().empty());
}

}  // namespace megatron::test
