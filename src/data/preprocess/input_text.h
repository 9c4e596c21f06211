// Input files of preprocessing as one sequence of bytes, cut into blocks, and the documents that begin in a block.
//
// A byte order mark at the start of a file is skipped. A gzip, zstd or bzip2 file (by its first bytes) is the text it
// holds: offsets and sizes are that text's, so it makes the same documents and shards as the file before it was
// compressed. Memory: one document and a fixed buffer. Files must be seekable. Errors of reading are
// ErrorKind::filesystem.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

class PackedText;

/// JSON lines: every line that is not blank is a record; "\r\n" ends a line as "\n" does.
///
/// Plain text: a file is cut into documents of about 64 KiB. A document begins at the start of the file and, in each
/// further 64 KiB of it, at the first paragraph (a line after a blank line), or at the first line if there is none. So
/// books can be split into training and test parts and read in parallel, no text is lost, and where the cuts are
/// depends on the file alone. "\r\n" becomes "\n".
///
/// Dumps of MediaWiki: a document is a page, from "<page>" to "</page>", tags included; what is between them is not
/// looked at, but a file ends with "</mediawiki>", or is ErrorKind::data. In such XML a text cannot have these tags.
enum class TextFormat { json_lines, plain, wiki_pages };

inline constexpr std::uint64_t kPlainDocumentBytes = 64 << 10;
inline constexpr std::uint64_t kLongestDocument = std::uint64_t{1}
                                                  << 30;  ///< bytes of one line or plain document, unless said

/// Tells a file from one that has taken its place, or that was written to since.
struct FileVersion {
  std::uint64_t bytes = 0;                    ///< on disk: of a compressed file, so
  std::int64_t seconds = 0, nanoseconds = 0;  ///< time of its last modification
  bool operator==(const FileVersion&) const = default;
};

/// An input file open for reading at any offset; not by several threads at once.
class InputFile {
 public:
  enum class Compressed { as_it_is, unpacked };

  /// `bytes`: of the text of a compressed file to be unpacked, if they were counted before.
  explicit InputFile(const std::string& path, Compressed compressed = Compressed::as_it_is,
                     std::uint64_t bytes = kUnknown);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  static constexpr std::uint64_t kUnknown = UINT64_MAX;

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }  ///< when it was opened; a file that shrinks later is an error
  const FileVersion& version() const { return version_; }  ///< when it was opened
  /// Replaces `buffer` by the bytes [first, first + count) of the file.
  void read(std::uint64_t first, std::uint64_t count, std::string& buffer) const;
  /// The number (from 1) of the line that holds the byte at `offset`; reads the file up to there.
  std::uint64_t line_of(std::uint64_t offset) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
  FileVersion version_;
  std::unique_ptr<PackedText> packed_;  // instead of the descriptor
};

/// A part of one file: the documents that begin at an offset in [begin, end).
struct Segment {
  std::size_t file = 0;
  std::uint64_t begin = 0, end = 0;
};

/// Cuts the files, laid end to end, into blocks of `block_bytes` (the last one shorter): the segments of block i.
std::vector<std::vector<Segment>> cut_into_blocks(const std::vector<std::uint64_t>& file_bytes,
                                                  std::uint64_t block_bytes);

/// Called with each document, the offset it begins at in its file, and whether it was too long to be read (the text is
/// then empty).
using DocumentVisitor = std::function<void(std::string_view text, std::uint64_t offset, bool too_long)>;

void visit_documents(const InputFile& file, TextFormat format, const Segment& segment, const DocumentVisitor& visit,
                     std::uint64_t longest = kLongestDocument);

}  // namespace megatron
