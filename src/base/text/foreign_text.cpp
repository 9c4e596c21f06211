#include "base/text/foreign_text.h"

#include <filesystem>

#include "base/text/shell_word.h"

namespace megatron {

using namespace std::string_view_literals;

std::string lfs_advice(std::string_view beginning) {
  if (!beginning.starts_with("version https://git-lfs.github.com/spec/")) return {};
  return "this is a pointer of Git LFS, not the file; fetch the file with `git lfs pull` in its repository, or "
         "download "
         "it";
}

std::string parquet_advice(const std::string& path) {
  constexpr const char* kProgram =
      "import json, sys, pyarrow.parquet as p; sys.stdout.writelines(json.dumps(row, default=str) + chr(10) "
      "for batch in p.ParquetFile(sys.argv[1]).iter_batches() for row in batch.to_pylist())";
  const std::string target = std::filesystem::path(path).filename().string() + ".jsonl";  // never the file itself
  return std::string("it is Parquet, and JSON lines are needed; with pyarrow: python3 -c \"") + kProgram + "\" " +
         shell_word(path) + " > " + shell_word(target);
}

std::string encoding_advice(std::string_view beginning) {
  const char* name = nullptr;
  if (beginning.starts_with("\xFF\xFE\0\0"sv) || beginning.starts_with("\0\0\xFE\xFF"sv)) {
    name = "UTF-32";
  } else if (beginning.starts_with("\xFF\xFE"sv) || beginning.starts_with("\xFE\xFF"sv)) {
    name = "UTF-16";
  } else if (beginning.size() >= 4) {  // without a mark: ASCII characters, each with a zero byte
    const bool odd = beginning[0] != 0 && beginning[1] == 0 && beginning[2] != 0 && beginning[3] == 0;
    const bool even = beginning[0] == 0 && beginning[1] != 0 && beginning[2] == 0 && beginning[3] != 0;
    if (odd || even) name = odd ? "UTF-16LE" : "UTF-16BE";
  }
  if (name == nullptr) return {};
  return std::string("it is ") + name + ", and UTF-8 is needed: iconv -f " + name + " -t UTF-8 FILE > NEW";
}

std::string json_line_advice(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r\n";
  if (line.starts_with("\xEF\xBB\xBF")) {
    return "the line begins with a byte order mark (U+FEFF), as the second of two joined files has it; remove it";
  }
  const std::size_t first = line.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  if (line[first] == '[') {
    return "a JSON array, where each line is to be an object: jq -c '.[]' FILE > NEW.jsonl";
  }
  if (line[first] == '{' && line[line.find_last_not_of(kSpace)] != '}') {
    return "the object does not end on its line; JSON lines have one object per line: jq -c . FILE > NEW.jsonl";
  }
  return {};
}

}  // namespace megatron
