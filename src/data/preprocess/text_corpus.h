// TextCorpus: the documents of a list of text files, also gzip, and folders, which stand for all files in them and
// below, by name (hidden ones left out). Errors name file and line: a bad document (invalid UTF-8, JSON without the
// text, too long, or what the user of its text throws) is ErrorKind::data, or is left out and counted. One file is open
// at a time, since there may be more than a process may have open: one that has changed when it is opened again is an
// error. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/preprocess/input_text.h"

namespace megatron {

struct TextInputs {
  std::vector<std::string> paths;
  std::string format;  ///< "jsonl", "text", or "": by each file's extension (.jsonl .ndjson .json / .txt), before .gz
  std::string json_key = "text";
  bool arrays = false;    ///< the key holds an array of strings (sentences) instead of one; JSON lines only
  bool skip_bad = false;  ///< leave bad documents out and count them
};

class TextCorpus {
 public:
  /// Finds the files and their sizes.
  explicit TextCorpus(TextInputs inputs);

  std::uint64_t bytes() const;                    ///< size of all files, unpacked
  std::vector<std::uint64_t> file_bytes() const;  ///< a Segment's file is an index into it
  const std::string& path(std::size_t file) const { return files_.at(file).path; }

  /// The text of each document that begins in the segment; may throw BadDocument (json_text.h).
  using UseText = std::function<void(std::string_view text)>;
  /// While a text is used that is an array of strings, one after the other: where each of them ends.
  const std::vector<std::size_t>& string_ends() const { return string_ends_; }
  /// Called now and then with the bytes of the segment read so far.
  using Progress = std::function<void(std::uint64_t bytes)>;
  /// Returns how many documents were bad.
  std::uint64_t visit(const Segment& segment, const UseText& use, const Progress& progress = {});

 private:
  struct File {
    std::string path;
    TextFormat format;
    std::uint64_t bytes;
    FileVersion version;
  };
  const InputFile& open(std::size_t file);
  std::string_view text_of(std::string_view document, TextFormat format);

  TextInputs inputs_;
  std::vector<File> files_;
  std::unique_ptr<InputFile> open_;
  std::size_t open_index_ = 0;
  std::string unescaped_;
  std::vector<std::size_t> string_ends_;
};

}  // namespace megatron
