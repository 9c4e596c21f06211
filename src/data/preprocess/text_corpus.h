// TextCorpus: the documents of a list of text files, also gzip, zstd and bzip2, and folders, which stand for all files
// in them and below, by name (without hidden ones, and what megatron_clean writes about its output). Errors name file
// and line: a bad document (invalid UTF-8, JSON without the text, too long, or what the user of its text throws) is
// ErrorKind::data, or is left out and counted. One file is open at a time, since there may be more than a process may
// have open: one that has changed when it is opened again is an error. Not thread-safe.
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
  std::string
      format;  ///< "jsonl", "text", or "": by each file's extension (.jsonl .ndjson .json / .txt), before .gz .zst .bz2
  const char* plain_name = "text";  ///< the program's name of the format "text", for messages
  std::string json_key = "text";
  bool wiki_pages = false;  ///< all files are dumps of MediaWiki
  bool arrays = false;      ///< the key holds an array of strings (sentences) instead of one; JSON lines only
  bool skip_bad = false;    ///< leave bad documents out and count them
  std::uint64_t longest = kLongestDocument;  ///< bytes of one line or plain document
};

/// Files in the folders that megatron_clean writes, which hold no documents.
inline constexpr const char *kReportFile = "report.json", *kProvenanceFile = "provenance.json";

class TextCorpus {
 public:
  /// The size of a compressed file's text is found by unpacking all of it, which ranks share (same_inputs.h).
  enum class Sizes { found, told_later };

  /// Finds the files, and their sizes unless set_file_bytes() tells them, before anything is read.
  explicit TextCorpus(TextInputs inputs, Sizes sizes = Sizes::found);

  std::size_t files() const { return files_.size(); }
  /// Finds a file's size, unpacked. ErrorKind::data if it is damaged, or in an encoding that is not read.
  std::uint64_t count_bytes(std::size_t file) const;
  /// The sizes of all files, as count_bytes() finds them, here or on other ranks.
  void set_file_bytes(const std::vector<std::uint64_t>& bytes);

  std::uint64_t bytes() const;                    ///< size of all files, unpacked
  std::vector<std::uint64_t> file_bytes() const;  ///< a Segment's file is an index into it
  const std::string& path(std::size_t file) const { return files_.at(file).path; }
  /// The first bytes of a file's text, at most this many.
  std::string beginning(std::size_t file, std::uint64_t bytes);
  bool has_json(std::size_t file) const { return files_.at(file).format == TextFormat::json_lines; }

  /// The text of each document that begins in the segment; may throw BadDocument (json_text.h).
  using UseText = std::function<void(std::string_view text)>;
  /// While a text is used that is an array of strings, one after the other: where each of them ends.
  const std::vector<std::size_t>& string_ends() const { return string_ends_; }
  /// Called now and then with the bytes of the segment read so far.
  using Progress = std::function<void(std::uint64_t bytes)>;
  /// Returns how many documents were bad.
  std::uint64_t visit(const Segment& segment, const UseText& use, const Progress& progress = {});

  /// Each line that is not blank and begins in the segment, without its end (valid UTF-8), and where it begins in its
  /// file, whatever the file's format, but of dumps each page; may throw BadDocument.
  using UseLine = std::function<void(std::string_view line, std::uint64_t offset)>;
  std::uint64_t visit_lines(const Segment& segment, const UseLine& use, const Progress& progress = {});

 private:
  struct File {
    std::string path;
    TextFormat format;
    FileVersion version;
    std::uint64_t bytes;
  };
  const InputFile& open(std::size_t file);
  std::string_view text_of(std::string_view document, TextFormat format);
  std::uint64_t visit_documents_of(const Segment& segment, TextFormat format, const UseLine& use,
                                   const Progress& progress);

  TextInputs inputs_;
  std::vector<File> files_;
  std::unique_ptr<InputFile> open_;
  std::size_t open_index_ = 0;
  std::string unescaped_;
  std::vector<std::size_t> string_ends_;
};

}  // namespace megatron
