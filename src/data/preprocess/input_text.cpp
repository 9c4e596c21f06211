#include "data/preprocess/input_text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/core/error.h"
#include "base/system/errno_text.h"
#include "base/system/regular_file.h"
#include "data/preprocess/packed_text.h"

namespace megatron {

namespace {

constexpr std::uint64_t kReadBytes = std::uint64_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

/// Takes the byte order mark off the first document of a file.
std::string_view without_mark(std::string_view text, std::uint64_t offset) {
  return offset == 0 && text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
}

/// Reads a file forward, line by line.
class LineReader {
 public:
  LineReader(const InputFile& file, std::uint64_t offset, std::uint64_t longest)
      : file_(file), offset_(offset), longest_(longest) {}

  std::uint64_t offset() const { return offset_; }  ///< where the next line begins

  /// Moves to the beginning of a line: after the next '\n', or to `limit` if there is none before it.
  void skip_line(std::uint64_t limit) {
    bool found = false;
    while (!found && offset_ < limit && (position_ < buffer_.size() || refill())) {
      const std::size_t end = std::min(buffer_.find('\n', position_), buffer_.size());
      found = end < buffer_.size();
      offset_ += end - position_ + (found ? 1 : 0);
      position_ = end + (found ? 1 : 0);
    }
  }

  /// Without its end; false at the end of the file. A line longer than the limit comes back empty, too_long set.
  bool next(std::string& line, bool& too_long) {
    line.clear();
    too_long = false;
    if (offset_ >= file_.bytes()) return false;
    while (true) {
      if (position_ == buffer_.size() && !refill()) return true;  // the last line has no end
      const std::size_t end = std::min(buffer_.find('\n', position_), buffer_.size());
      too_long = too_long || line.size() + (end - position_) > longest_;
      if (too_long) {
        line.clear();
      } else {
        line.append(buffer_, position_, end - position_);
      }
      const bool complete = end < buffer_.size();
      offset_ += end - position_ + (complete ? 1 : 0);
      position_ = end + (complete ? 1 : 0);
      if (complete) return true;
    }
  }

 private:
  bool refill() {
    const std::uint64_t count = std::min(kReadBytes, file_.bytes() - offset_);
    position_ = 0;
    file_.read(offset_, count, buffer_);
    return count > 0;
  }

  const InputFile& file_;
  std::uint64_t offset_, longest_;
  std::string buffer_;
  std::size_t position_ = 0;
};

void visit_lines(const InputFile& file, const Segment& segment, const DocumentVisitor& visit, std::uint64_t longest) {
  // A line belongs to the segment that holds its first byte: start one byte early to see whether a line begins here.
  LineReader reader(file, segment.begin == 0 ? 0 : segment.begin - 1, longest);
  std::string line;
  bool too_long = false;
  if (segment.begin > 0) reader.skip_line(segment.end);
  while (reader.offset() < segment.end) {
    const std::uint64_t offset = reader.offset();
    if (!reader.next(line, too_long)) break;
    if (line.ends_with('\r')) line.pop_back();
    const std::string_view document = without_mark(line, offset);
    if (too_long || !is_blank(document)) visit(document, offset, too_long);
  }
}

/// Where a plain document begins in piece `piece` of the file; file.bytes() if none does.
std::uint64_t document_in_piece(const InputFile& file, std::uint64_t piece, std::string& buffer) {
  if (piece == 0) return 0;
  const std::uint64_t begin = piece * kPlainDocumentBytes;
  // One byte before the piece tells whether its first byte begins a line.
  file.read(begin - 1, std::min(kPlainDocumentBytes + 1, file.bytes() - (begin - 1)), buffer);
  const std::string_view text(buffer);
  std::size_t first_line = 0, previous = 0;  // 0: none yet, since a line begins at 1 at the earliest
  for (std::size_t end = text.find('\n'); end != std::string_view::npos && end + 1 < text.size();
       end = text.find('\n', end + 1)) {
    const std::size_t line = end + 1;
    if (first_line == 0) first_line = line;
    const std::string_view here = text.substr(line, text.find('\n', line) - line);
    const bool after_blank = previous > 0 && is_blank(text.substr(previous, end - previous));
    if (after_blank && !is_blank(here)) return begin - 1 + line;
    previous = line;
  }
  return first_line > 0 ? begin - 1 + first_line : file.bytes();
}

void remove_carriage_returns(std::string& text) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    text[kept++] = text[i];
  }
  text.resize(kept);
}

void visit_pieces(const InputFile& file, const Segment& segment, const DocumentVisitor& visit, std::uint64_t longest) {
  std::string buffer, text;
  const std::uint64_t pieces = (file.bytes() + kPlainDocumentBytes - 1) / kPlainDocumentBytes;
  std::uint64_t piece = segment.begin / kPlainDocumentBytes;
  while (piece < pieces && piece * kPlainDocumentBytes < segment.end) {
    const std::uint64_t start = document_in_piece(file, piece++, buffer);
    const bool in_segment = start >= segment.begin && start < segment.end;
    if (!in_segment) continue;
    std::uint64_t end = file.bytes();
    for (; piece < pieces; ++piece) {
      const std::uint64_t following = document_in_piece(file, piece, buffer);
      if (following < file.bytes()) {
        end = following;
        break;
      }
    }
    const bool too_long = end - start > longest;
    if (too_long) {
      text.clear();
    } else {
      file.read(start, end - start, text);
    }
    remove_carriage_returns(text);
    const std::string_view document = without_mark(text, start);
    if (too_long || !is_blank(document)) visit(document, start, too_long);
  }
}

constexpr std::string_view kPageBegin = "<page>", kPageEnd = "</page>", kDumpEnd = "</mediawiki>";

/// Reads a dump forward, page by page.
class PageReader {
 public:
  PageReader(const InputFile& file, std::uint64_t offset, std::uint64_t longest)
      : file_(file), begin_(offset), longest_(longest) {}

  /// Finds the next page that begins before `limit`. One that is too long comes back empty, and its end is not looked
  /// for beyond `limit`: where many pages lack theirs, that would be a pass over the file for each of them.
  bool next(std::uint64_t limit, std::string& page, std::uint64_t& offset, bool& too_long) {
    page.clear();
    too_long = false;
    if (!find(kPageBegin, [](std::string_view) { return true; })) return false;
    offset = begin_ + at_;
    if (offset >= limit) return false;
    const auto take = [&](std::string_view part) {
      too_long = too_long || page.size() + part.size() > longest_;
      if (too_long) part = {}, page.clear();
      page += part;
      return !too_long || begin_ + at_ < limit;
    };
    if (find(kPageEnd, take)) {
      take(kPageEnd);
      at_ += kPageEnd.size();
    }
    return true;
  }

 private:
  /// Moves to the next such tag. False at the end of the file, or where pass(part), which is told what lies before the
  /// tag, wants no more.
  template <class Pass>
  bool find(std::string_view tag, const Pass& pass) {
    while (true) {
      const std::size_t found = text_.find(tag, at_);
      // A tag may be in two pieces: the last bytes are kept.
      const std::size_t kept = std::min(text_.size() - at_, tag.size() - 1);
      const std::size_t end = found < text_.size() ? found : text_.size() - kept;
      const bool wanted = pass(std::string_view(text_).substr(at_, end - at_));
      at_ = end;
      if (found < text_.size()) return true;
      if (!wanted) return false;
      if (read_more()) continue;
      pass(std::string_view(text_).substr(at_));
      at_ = text_.size();
      return false;
    }
  }
  bool read_more() {
    text_.erase(0, at_);
    begin_ += at_;
    at_ = 0;
    const std::uint64_t end = begin_ + text_.size(), count = std::min(kReadBytes, file_.bytes() - end);
    file_.read(end, count, piece_);
    text_ += piece_;
    return count > 0;
  }

  const InputFile& file_;
  std::uint64_t begin_, longest_;  // begin_: of the text, in the file
  std::string text_, piece_;
  std::size_t at_ = 0;
};

void visit_pages(const InputFile& file, const Segment& segment, const DocumentVisitor& visit, std::uint64_t longest) {
  PageReader reader(file, segment.begin, longest);
  std::string page;
  std::uint64_t offset = 0;
  for (bool too_long = false; reader.next(segment.end, page, offset, too_long);) visit(page, offset, too_long);
  if (segment.end < file.bytes()) return;
  constexpr std::uint64_t kLastBytes = 64;
  const std::uint64_t count = std::min(kLastBytes, file.bytes());
  file.read(file.bytes() - count, count, page);
  page.resize(page.find_last_not_of(" \t\r\n") + 1);
  verify(page.ends_with(kDumpEnd), ErrorKind::data,
         "{}: does not end with {}; it is incomplete, or no dump of MediaWiki", file.path(), kDumpEnd);
}

}  // namespace

InputFile::InputFile(const std::string& path, Compressed compressed, std::uint64_t bytes)
    : path_(path),
      descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // no wait for who fills a pipe
  if (descriptor_ < 0) fail(ErrorKind::data, "{}: cannot open it: {}", path, errno_text(errno));
  struct stat info {};
  const bool regular = ::fstat(descriptor_, &info) == 0 && S_ISREG(info.st_mode);
  if (!regular) ::close(std::exchange(descriptor_, -1));
  verify(regular, ErrorKind::data, "{}: not a regular file (pipes and folders cannot be read in parallel)", path);
  bytes_ = static_cast<std::uint64_t>(info.st_size);
  try {
    refuse_lfs_pointer(descriptor_, bytes_, path, ErrorKind::data);
  } catch (...) {
    ::close(std::exchange(descriptor_, -1));
    throw;
  }
  version_ = {bytes_, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
  if (compressed == Compressed::as_it_is) return;
  try {
    packed_ = open_packed(path, bytes);
  } catch (...) {
    ::close(std::exchange(descriptor_, -1));
    throw;
  }
  if (packed_ == nullptr) return;
  ::close(std::exchange(descriptor_, -1));
  bytes_ = packed_->bytes();
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(std::uint64_t first, std::uint64_t count, std::string& buffer) const {
  if (packed_ != nullptr) return packed_->read(first, count, buffer);
  buffer.resize(count);
  std::uint64_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(descriptor_, buffer.data() + done, count - done, static_cast<off_t>(first + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorKind::filesystem, "{}: cannot read it: {}", path_, errno_text(errno));
    verify(got > 0, ErrorKind::data, "{}: has become shorter while it was being read", path_);
    done += static_cast<std::uint64_t>(got);
  }
}

std::uint64_t InputFile::line_of(std::uint64_t offset) const {
  std::uint64_t line = 1;
  std::string buffer;
  for (std::uint64_t position = 0; position < offset; position += buffer.size()) {
    read(position, std::min(kReadBytes, offset - position), buffer);
    line += static_cast<std::uint64_t>(std::count(buffer.begin(), buffer.end(), '\n'));
  }
  return line;
}

std::vector<std::vector<Segment>> cut_into_blocks(const std::vector<std::uint64_t>& file_bytes,
                                                  std::uint64_t block_bytes) {
  std::vector<std::vector<Segment>> blocks;
  std::uint64_t room = 0;  // left in the last block
  for (std::size_t file = 0; file < file_bytes.size(); ++file) {
    for (std::uint64_t begin = 0; begin < file_bytes[file];) {
      if (room == 0) {
        blocks.emplace_back();
        room = block_bytes;
      }
      const std::uint64_t count = std::min(room, file_bytes[file] - begin);
      blocks.back().push_back({file, begin, begin + count});
      begin += count;
      room -= count;
    }
  }
  return blocks;
}

void visit_documents(const InputFile& file, TextFormat format, const Segment& segment, const DocumentVisitor& visit,
                     std::uint64_t longest) {
  if (format == TextFormat::json_lines) {
    visit_lines(file, segment, visit, longest);
  } else if (format == TextFormat::wiki_pages) {
    visit_pages(file, segment, visit, longest);
  } else {
    visit_pieces(file, segment, visit, longest);
  }
}

}  // namespace megatron
