#include "data/duplicates/signature_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>

#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "base/system/errno_text.h"

namespace megatron {

namespace {

constexpr std::uint64_t kMagic = 0x31474953'4754474Dull;  // "MGTGSIG1"

struct Header {
  std::uint64_t magic = kMagic, words = 0, block_words = 0, records = 0, hash = 0;

  std::uint64_t expected_hash() const { return XXH3_64bits(this, offsetof(Header, hash)); }
};
static_assert(sizeof(Header) == 40);

std::uint64_t block_hash(const std::vector<std::uint64_t>& block, std::uint64_t place) {
  return XXH3_64bits_withSeed(block.data(), block.size() * sizeof(std::uint64_t), place);
}

}  // namespace

SignatureFileWriter::SignatureFileWriter(std::string path, std::size_t words, std::size_t block_bytes)
    : path_(std::move(path)), words_(words), block_words_(block_bytes / sizeof(std::uint64_t) / words * words) {
  internal_check(words >= 1 && block_words_ >= words && block_bytes <= kMostBlockBytes,
                 "a block of a signature file has at least a record and at most 16 MiB", words, block_bytes);
  block_.reserve(block_words_);
  do {
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file_ < 0 && errno == EINTR);
  if (file_ < 0) fail_with_errno("create", path_);
  try {
    const Header unfinished{0, 0, 0, 0, 0};
    write(&unfinished, sizeof unfinished);
  } catch (...) {
    ::close(file_);  // no destructor runs for what was never constructed
    remove_quietly(path_);
    throw;
  }
}

SignatureFileWriter::~SignatureFileWriter() {
  if (file_ < 0) return;
  ::close(file_);
  remove_quietly(path_);
}

void SignatureFileWriter::write(const void* data, std::size_t bytes) {
  const char* position = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_, position, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      if (written == 0) errno = ENOSPC;
      fail_with_errno("write", path_);
    }
    position += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void SignatureFileWriter::write_block() {
  const std::uint64_t hash = block_hash(block_, blocks_);
  write(block_.data(), block_.size() * sizeof(std::uint64_t));
  write(&hash, sizeof hash);
  ++blocks_;
  block_.clear();
}

void SignatureFileWriter::append(std::span<const std::uint64_t> record) {
  if (block_.size() == block_words_) write_block();
  block_.insert(block_.end(), record.begin(), record.end());
  ++records_;
}

void SignatureFileWriter::finish() {
  if (!block_.empty()) write_block();
  Header header{kMagic, words_, block_words_, records_, 0};
  header.hash = header.expected_hash();
  if (::lseek(file_, 0, SEEK_SET) != 0) fail_with_errno("write", path_);
  write(&header, sizeof header);
  const int file = file_;
  file_ = -1;
  if (::close(file) == 0 || errno == EINTR) return;
  const int reason = errno;  // network file systems may report a failed write only here
  remove_quietly(path_);
  fail(ErrorKind::filesystem, "cannot write {}: {}", path_, errno_text(reason));
}

SignatureFileReader::SignatureFileReader(std::string path, std::size_t words)
    : file_(std::move(path), ErrorKind::data), words_(words) {
  constexpr std::uint64_t kWord = sizeof(std::uint64_t), kMostWords = std::uint64_t{1} << 58;
  const char* advice = "the scratch folder was changed or the disk is damaged; start this step again";
  Header header;
  verify(file_.bytes() >= sizeof header, ErrorKind::data, "{}: too short for a signature file; {}", file_.path(),
         advice);
  file_.read(0, &header, sizeof header);
  verify(header.magic != 0, ErrorKind::data, "{}: this signature file was never finished; {}", file_.path(), advice);
  verify(header.magic == kMagic && header.hash == header.expected_hash(), ErrorKind::data,
         "{}: the header of this signature file is damaged; {}", file_.path(), advice);
  verify(header.words == words && header.block_words > 0 && header.block_words % words == 0 &&
             header.block_words <= kMostBlockBytes / kWord && header.records <= kMostWords / words,
         ErrorKind::data,
         "{}: a signature file of {} words per record and {} per block, where {} words were written; {}", file_.path(),
         header.words, header.block_words, words, advice);
  const std::uint64_t all = header.records * words, blocks = (all + header.block_words - 1) / header.block_words;
  const std::uint64_t expected = sizeof header + (all + blocks) * kWord;
  verify(file_.bytes() == expected, ErrorKind::data, "{}: {} bytes, where {} records take {}; {}", file_.path(),
         file_.bytes(), header.records, expected, advice);
  records_ = left_ = header.records;
  block_words_ = header.block_words;
  position_ = sizeof header;
}

void SignatureFileReader::read_block() {
  block_.resize(std::min<std::uint64_t>(block_words_, left_ * words_));
  const std::size_t bytes = block_.size() * sizeof(std::uint64_t);
  std::uint64_t hash = 0;
  file_.read(position_, block_.data(), bytes);
  file_.read(position_ + bytes, &hash, sizeof hash);
  verify(hash == block_hash(block_, blocks_), ErrorKind::data,
         "{}: the records from byte {} on are damaged, their checksum differs; start this step again", file_.path(),
         position_);
  position_ += bytes + sizeof hash;
  ++blocks_;
  at_ = 0;
}

std::span<const std::uint64_t> SignatureFileReader::next() {
  if (left_ == 0) return {};
  if (at_ == block_.size()) {
    if (!block_.empty()) last_.assign(block_.end() - static_cast<std::ptrdiff_t>(words_), block_.end());
    read_block();
  }
  const std::span record = std::span(block_).subspan(at_, words_);
  const std::span<const std::uint64_t> before = at_ > 0 ? std::span(block_).subspan(at_ - words_, words_) : last_;
  verify(!std::lexicographical_compare(record.begin(), record.end(), before.begin(), before.end()), ErrorKind::data,
         "{}: record {} is less than the one before it; start this step again", file_.path(), records_ - left_);
  at_ += words_;
  --left_;
  return record;
}

}  // namespace megatron
