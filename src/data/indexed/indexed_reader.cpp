#include "data/indexed/indexed_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/core/error.h"

namespace megatron {

using namespace indexed;

namespace {

constexpr std::uint64_t kMmapHeader = 9 + 8 + 1 + 8 + 8, kTntidxHeader = 8 + 8 + 8 + 8 + 8 + 8 + 8;
constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 60;  // so that no number of bytes overflows

IndexedType checked_type(std::uint64_t code, const std::string& path) {
  const std::optional<IndexedType> type = indexed_type_of(code);
  verify(type.has_value(), ErrorKind::data, "{}: elements of type {}{}: not token ids", path, code,
         code == 6 || code == 7 ? ", floating-point numbers" : ", which Megatron does not have");
  return *type;
}

}  // namespace

/// The numbers of an index file from front to back, a part of it in memory at a time.
class IndexedReader::Fields {
 public:
  explicit Fields(const std::string& path) : file_(path) {}

  const std::string& path() const { return file_.path(); }
  std::uint64_t bytes_left() const { return file_.bytes() - offset_; }

  std::string_view take(std::uint64_t bytes) {
    if (bytes > buffer_.size() - position_) {
      verify(bytes <= bytes_left(), ErrorKind::data, "{}: ends in the middle of its index", path());
      file_.read(offset_, std::min(std::max(bytes, kBufferBytes), bytes_left()), buffer_);
      position_ = 0;
    }
    const std::string_view taken = std::string_view(buffer_).substr(position_, bytes);
    position_ += bytes;
    offset_ += bytes;
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

 private:
  InputFile file_;
  std::uint64_t offset_ = 0;  // position in the file of what is taken next
  std::string buffer_;
  std::size_t position_ = 0;
};

IndexedReader::IndexedReader(const std::string& prefix) : index_path_(prefix + ".idx"), tokens_file_(prefix + ".bin") {
  Fields fields(index_path_);
  verify(fields.bytes_left() >= kTntidxMagic.size(), ErrorKind::data, "{}: too short for an index", index_path_);
  std::string magic(fields.take(kTntidxMagic.size()));
  if (magic == kTntidxMagic) {
    read_tntidx(fields);
  } else {
    verify(magic == kMmapMagic.substr(0, magic.size()) && fields.bytes_left() > 0 &&
               fields.take(1) == kMmapMagic.substr(8),
           ErrorKind::data, "{}: begins neither with \"MMIDIDX\" nor \"TNTIDX\": not an index of Megatron's",
           index_path_);
    read_mmap(fields);
  }
  verify(tokens_file_.bytes() == tokens_ * bytes_of(type_), ErrorKind::data,
         "{}: {} bytes, but {} says it has {} tokens of {} bytes; copy both files again", tokens_file_.path(),
         tokens_file_.bytes(), index_path_, tokens_, bytes_of(type_));
}

void IndexedReader::read_mmap(Fields& fields) {
  verify(fields.bytes_left() >= kMmapHeader - kMmapMagic.size(), ErrorKind::data, "{}: too short for an index",
         index_path_);
  const auto version = fields.number<std::uint64_t>();
  verify(version == kVersion, ErrorKind::data, "{}: version {} of the format; this program reads {}", index_path_,
         version, kVersion);
  type_ = checked_type(fields.number<std::uint8_t>(), index_path_);
  const auto sequences = fields.number<std::uint64_t>(), documents = fields.number<std::uint64_t>();
  const std::uint64_t left = fields.bytes_left();
  verify(sequences <= left / 12 && documents <= (left - 12 * sequences) / 8, ErrorKind::data,
         "{}: {} sequences and a document index of {} do not fit into {} bytes; copy it again", index_path_, sequences,
         documents, left);
  const std::uint64_t rest = left - 12 * sequences - 8 * documents;
  verify(rest == 0, ErrorKind::data, "{}: {} bytes after its end{}", index_path_, rest,
         rest == sequences ? ": modes of sequences, which multimodal data has" : "");
  lengths_.reserve(sequences);
  for (std::uint64_t i = 0; i < sequences; ++i) add_length(fields.number<std::int32_t>());
  std::uint64_t expected = 0;
  for (std::uint64_t i = 0; i < sequences; ++i) {
    const auto offset = fields.number<std::int64_t>();
    verify(
        offset >= 0 && static_cast<std::uint64_t>(offset) == expected, ErrorKind::data,
        "{}: sequence {} is said to begin at byte {}, but the lengths before it make {}; older tools wrote such files "
        "when these numbers passed 2^31: make it again",
        index_path_, i, offset, expected);
    expected += lengths_[i] * bytes_of(type_);
  }
  read_documents(fields, documents);
}

void IndexedReader::read_tntidx(Fields& fields) {
  verify(fields.bytes_left() >= kTntidxHeader - kTntidxMagic.size(), ErrorKind::data, "{}: too short for an index",
         index_path_);
  const auto version = fields.number<std::uint64_t>();
  verify(version == kVersion, ErrorKind::data, "{}: version {} of the format; this program reads {}", index_path_,
         version, kVersion);
  type_ = checked_type(fields.number<std::uint64_t>(), index_path_);
  const auto element = fields.number<std::uint64_t>();
  verify(element == bytes_of(type_), ErrorKind::data, "{}: elements of type {} with {} bytes", index_path_,
         name_of(type_), element);
  const auto sequences = fields.number<std::uint64_t>(), lengths = fields.number<std::uint64_t>(),
             documents = fields.number<std::uint64_t>();
  const std::uint64_t numbers = fields.bytes_left() / 8;
  const bool fits = sequences < numbers / 2 && lengths <= numbers - 2 * (sequences + 1) &&
                    documents == numbers - 2 * (sequences + 1) - lengths && fields.bytes_left() % 8 == 0;
  verify(fits, ErrorKind::data, "{}: {} sequences, {} lengths and a document index of {} do not make {} bytes",
         index_path_, sequences, lengths, documents, fields.bytes_left());
  verify(lengths == sequences, ErrorKind::data, "{}: {} sequences with {} lengths; tokens have one each", index_path_,
         sequences, lengths);
  for (std::uint64_t i = 0; i <= sequences; ++i) {
    const auto place = fields.number<std::int64_t>();
    verify(place >= 0 && static_cast<std::uint64_t>(place) == i, ErrorKind::data,
           "{}: sequence {} does not have one length", index_path_, i);
  }
  // Where sequences begin comes before their lengths: the differences are the lengths, which must be repeated.
  auto begin = fields.number<std::int64_t>();
  verify(begin == 0, ErrorKind::data, "{}: the first sequence begins at element {}", index_path_, begin);
  lengths_.reserve(sequences);
  for (std::uint64_t i = 0; i < sequences; ++i) {
    const auto end = fields.number<std::int64_t>();
    verify(end >= begin, ErrorKind::data, "{}: sequence {} ends before it begins", index_path_, i);
    add_length(end - begin);
    begin = end;
  }
  for (std::uint64_t i = 0; i < sequences; ++i) {
    const auto length = fields.number<std::int64_t>();
    verify(length == static_cast<std::int64_t>(lengths_[i]), ErrorKind::data,
           "{}: sequence {} has {} elements between its neighbours, but a length of {}", index_path_, i, lengths_[i],
           length);
  }
  read_documents(fields, documents);
}

void IndexedReader::add_length(std::int64_t length) {
  verify(length >= 0 && length <= kLongest, ErrorKind::data, "{}: sequence {} has a length of {}", index_path_,
         lengths_.size(), length);
  lengths_.push_back(static_cast<std::uint32_t>(length));
  tokens_ += static_cast<std::uint64_t>(length);
  verify(tokens_ <= kMostTokens, ErrorKind::data, "{}: too many tokens", index_path_);
}

/// `count` entries, which the file has.
void IndexedReader::read_documents(Fields& fields, std::uint64_t count) {
  const auto wrong = [&](std::string problem) {
    document_problem_ = std::move(problem);
    documents_ = {};
  };
  if (count == 0) return wrong("it is empty");
  bool each_a_document = count == sequences() + 1;
  std::uint64_t before = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto entry = fields.number<std::int64_t>();
    const bool good = entry >= 0 && static_cast<std::uint64_t>(entry) <= sequences() &&
                      static_cast<std::uint64_t>(entry) >= before && (i > 0 || entry == 0);
    if (!good)
      return wrong(fmt::format("entry {} is {}, after {} and with {} sequences", i, entry, before, sequences()));
    before = static_cast<std::uint64_t>(entry);
    each_a_document = each_a_document && before == i;
    if (each_a_document) continue;
    if (documents_.empty()) {  // the first that differs, after i that were their numbers, or the first of all
      documents_.reserve(count);
      for (std::uint64_t number = 0; number < i; ++number) documents_.push_back(number);
    }
    documents_.push_back(before);
  }
  if (before != sequences()) {
    return wrong(fmt::format("it ends with {} instead of {}, the number of sequences", before, sequences()));
  }
}

void IndexedReader::read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) {
  internal_check(first <= tokens_ && count <= tokens_ - first, "tokens beyond the end of the data", first, count,
                 tokens_);
  with_type(type_, [&](auto token) {
    using Token = decltype(token);
    while (count > 0) {
      const std::uint64_t here = std::min(count, kBufferBytes / sizeof(Token));
      tokens_file_.read(first * sizeof(Token), here * sizeof(Token), staging_);
      for (std::uint64_t i = 0; i < here; ++i) {
        std::memcpy(&token, staging_.data() + i * sizeof(Token), sizeof(Token));
        const auto id = static_cast<std::int64_t>(token);
        if (id < 0 || id > kLongest) {
          fail(ErrorKind::data, "{}: token {} is {}: no id", tokens_file_.path(), first + i, id);
        }
        ids[i] = static_cast<std::int32_t>(id);
      }
      first += here;
      count -= here;
      ids += here;
    }
  });
}

}  // namespace megatron
