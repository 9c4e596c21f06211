#include "data/preprocess/text_corpus.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <new>
#include <utility>

#include "base/core/error.h"
#include "base/system/errno_text.h"
#include "base/system/regular_file.h"
#include "base/text/foreign_text.h"
#include "base/text/utf8.h"
#include "data/preprocess/json_text.h"
#include "data/preprocess/packed_text.h"

namespace megatron {

namespace {

namespace fs = std::filesystem;

BadDocument too_long_document(std::uint64_t longest) {
  return {fmt::format("longer than {} bytes{}", longest,
                      longest < kLongestDocument ? "; --longest takes longer ones" : "")};
}

TextFormat format_of(const std::string& path, const TextInputs& inputs) {
  const std::string& format = inputs.format;
  if (inputs.wiki_pages) return TextFormat::wiki_pages;
  if (format == "jsonl") return TextFormat::json_lines;
  if (format == "text") return TextFormat::plain;
  verify(format.empty(), ErrorKind::configuration, "there is no format \"{}\"; choose jsonl or text", format);
  const fs::path name(path);
  const bool packed = name.extension() == ".gz" || name.extension() == ".zst" || name.extension() == ".bz2";
  const std::string extension = (packed ? name.stem() : name).extension().string();
  if (extension == ".jsonl" || extension == ".ndjson" || extension == ".json") return TextFormat::json_lines;
  verify(extension == ".txt" || extension == ".text" || extension == ".md", ErrorKind::configuration,
         "{}: the extension does not tell the format; give --format jsonl or --format {}", path, inputs.plain_name);
  return TextFormat::plain;
}

/// Four letters that Parquet begins and ends with. A text may begin with them too.
bool is_parquet(const std::string& path) {
  constexpr std::string_view kMark = "PAR1";
  if (!begins_with(path, kMark)) return false;
  const RegularFile file(path, ErrorKind::data);
  std::string end(kMark.size(), '\0');
  file.read(file.bytes() - end.size(), end.data(), end.size());
  return end == kMark;
}

/// ErrorKind::data if the file is Parquet, by its ends or its name.
void refuse_parquet(const std::string& path) {
  if (!is_parquet(path)) {
    if (fs::path(path).extension() != ".parquet") return;
    const InputFile file(path);  // tells what else it may be, such as a pointer of Git LFS
  }
  fail(ErrorKind::data, "{}: {}", path, parquet_advice(path));
}

void add_files_of(const std::string& folder, std::vector<std::string>& files) {
  const auto first = static_cast<std::ptrdiff_t>(files.size());
  std::error_code error, ignored;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool hidden = name.starts_with('.');
    if (hidden) entry.disable_recursion_pending();
    const bool about_others = name == kReportFile || name == kProvenanceFile;
    if (!hidden && !about_others && entry->is_regular_file(ignored)) files.push_back(entry->path().string());
  }
  verify(!error, ErrorKind::filesystem, "{}: cannot read this folder: {}", folder, error.message());
  verify(files.begin() + first != files.end(), ErrorKind::data, "{}: no files are in this folder", folder);
  std::sort(files.begin() + first, files.end());
}

void check_utf8(std::string_view text) {
  const std::size_t valid = first_invalid_utf8(text);
  if (valid < text.size()) {
    throw BadDocument{fmt::format("invalid UTF-8: byte 0x{:02x}", static_cast<unsigned char>(text[valid])), valid};
  }
}

[[noreturn]] void reject(const InputFile& file, std::string_view document, std::uint64_t offset,
                         const BadDocument& bad) {
  const std::string_view before = document.substr(0, bad.at);
  const auto lines = static_cast<std::uint64_t>(std::count(before.begin(), before.end(), '\n'));
  fail(ErrorKind::data, "{}:{}: {} (--skip-bad leaves such documents out)", file.path(), file.line_of(offset) + lines,
       bad.reason);
}

}  // namespace

TextCorpus::TextCorpus(TextInputs inputs, Sizes sizes) : inputs_(std::move(inputs)) {
  verify(!inputs_.paths.empty(), ErrorKind::configuration, "give at least one --input");
  std::vector<std::string> paths;
  for (const std::string& path : inputs_.paths) {
    verify(!path.empty(), ErrorKind::configuration, "--input \"\": give the name of a file or folder");
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
      add_files_of(path, paths);
    } else {
      paths.push_back(path);
    }
  }
  for (const std::string& path : paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) fail(ErrorKind::data, "{}: cannot open it: {}", path, errno_text(errno));
    refuse_other_compression(path);
    refuse_parquet(path);
    const TextFormat format = format_of(path, inputs_);
    verify(!inputs_.arrays || format == TextFormat::json_lines, ErrorKind::configuration,
           "{}: plain text has no arrays of sentences; choose --split-sentences or --sentences lines", path);
    files_.push_back({path, format, InputFile(path).version(), InputFile::kUnknown});
    if (sizes == Sizes::found) files_.back().bytes = count_bytes(files_.size() - 1);
  }
}

std::uint64_t TextCorpus::count_bytes(std::size_t file) const {
  const auto& [path, format, version, bytes] = files_.at(file);
  const InputFile text(path, InputFile::Compressed::unpacked);
  verify(text.version() == version, ErrorKind::data, "{}: has changed while it was in use", path);
  std::string beginning;
  text.read(0, std::min<std::uint64_t>(4, text.bytes()), beginning);
  const std::string advice = encoding_advice(beginning);
  verify(advice.empty(), ErrorKind::data, "{}: {}", path, advice);
  return text.bytes();
}

void TextCorpus::set_file_bytes(const std::vector<std::uint64_t>& bytes) {
  internal_check(bytes.size() == files_.size(), "a size for each file", bytes.size(), files_.size());
  for (std::size_t i = 0; i < files_.size(); ++i) files_[i].bytes = bytes[i];
}

std::uint64_t TextCorpus::bytes() const {
  std::uint64_t sum = 0;
  for (const File& file : files_) sum += file.bytes;
  return sum;
}

std::vector<std::uint64_t> TextCorpus::file_bytes() const {
  std::vector<std::uint64_t> bytes;
  for (const File& file : files_) bytes.push_back(file.bytes);
  return bytes;
}

const InputFile& TextCorpus::open(std::size_t file) {
  const File& wanted = files_.at(file);
  internal_check(wanted.bytes != InputFile::kUnknown, "a file is read after its size was found", wanted.path);
  if (open_ == nullptr || open_index_ != file) {
    open_ = std::make_unique<InputFile>(wanted.path, InputFile::Compressed::unpacked, wanted.bytes);
    open_index_ = file;
    verify(open_->version() == wanted.version, ErrorKind::data, "{}: has changed while it was in use", wanted.path);
  }
  return *open_;
}

std::string TextCorpus::beginning(std::size_t file, std::uint64_t bytes) {
  std::string text;
  const InputFile& input = open(file);
  input.read(0, std::min(bytes, input.bytes()), text);
  return text;
}

std::string_view TextCorpus::text_of(std::string_view document, TextFormat format) {
  if (format == TextFormat::plain) return document;
  try {
    if (inputs_.arrays) return texts_of_json(document, inputs_.json_key, unescaped_, string_ends_);
    return text_of_json(document, inputs_.json_key, unescaped_);
  } catch (const std::bad_alloc&) {
    unescaped_ = {};
    throw BadDocument{"too little memory to encode this document"};
  }
}

std::uint64_t TextCorpus::visit(const Segment& segment, const UseText& use, const Progress& progress) {
  const TextFormat format = files_[segment.file].format;
  return visit_documents_of(
      segment, format, [&](std::string_view document, std::uint64_t) { use(text_of(document, format)); }, progress);
}

std::uint64_t TextCorpus::visit_lines(const Segment& segment, const UseLine& use, const Progress& progress) {
  const bool has_pages = files_[segment.file].format == TextFormat::wiki_pages;
  return visit_documents_of(segment, has_pages ? TextFormat::wiki_pages : TextFormat::json_lines, use, progress);
}

std::uint64_t TextCorpus::visit_documents_of(const Segment& segment, TextFormat format, const UseLine& use,
                                             const Progress& progress) {
  constexpr std::uint64_t kProgressBytes = 4 << 20;
  const InputFile& file = open(segment.file);
  std::uint64_t bad_documents = 0, reported = 0;
  const DocumentVisitor visit_one = [&](std::string_view document, std::uint64_t offset, bool too_long) {
    try {
      if (too_long) throw too_long_document(inputs_.longest);
      check_utf8(document);
      use(document, offset);
    } catch (const BadDocument& bad) {
      ++bad_documents;
      if (!inputs_.skip_bad) reject(file, document, offset, bad);
    }
    const std::uint64_t done = std::min(offset + document.size(), segment.end) - segment.begin;
    if (!progress || done < reported + kProgressBytes) return;
    reported = done;
    progress(done);
  };
  megatron::visit_documents(file, format, segment, visit_one, inputs_.longest);
  if (progress) progress(segment.end - segment.begin);
  return bad_documents;
}

}  // namespace megatron
