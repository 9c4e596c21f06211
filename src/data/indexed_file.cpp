#include "data/indexed_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/error.h"

namespace megatron {

static_assert(std::endian::native == std::endian::little, "numbers are read and written as they lie in memory");

namespace {

constexpr std::string_view kMmapMagic{"MMIDIDX\0\0", 9}, kTntidxMagic{"TNTIDX\0\0", 8};
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kMmapHeader = 9 + 8 + 1 + 8 + 8, kTntidxHeader = 8 + 8 + 8 + 8 + 8 + 8 + 8;
constexpr std::uint64_t kReadBytes = 1 << 20;
constexpr std::int64_t kLongest = std::numeric_limits<std::int32_t>::max();
constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 60;  // so that no number of bytes overflows

struct TypeRow {
  IndexedType type;
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<TypeRow, 6> kTypes{{{IndexedType::u8, "uint8", 1},
                                         {IndexedType::i8, "int8", 1},
                                         {IndexedType::i16, "int16", 2},
                                         {IndexedType::i32, "int32", 4},
                                         {IndexedType::i64, "int64", 8},
                                         {IndexedType::u16, "uint16", 2}}};

const TypeRow* find_type(std::uint64_t code) {
  const auto row = std::find_if(kTypes.begin(), kTypes.end(),
                                [&](const TypeRow& r) { return static_cast<std::uint64_t>(r.type) == code; });
  return row == kTypes.end() ? nullptr : &*row;
}

/// Calls `use` with the C++ type that the tokens have.
template <class Use>
void with_type(IndexedType type, Use&& use) {
  switch (type) {
    case IndexedType::u8: return use(std::uint8_t{});
    case IndexedType::i8: return use(std::int8_t{});
    case IndexedType::i16: return use(std::int16_t{});
    case IndexedType::i32: return use(std::int32_t{});
    case IndexedType::i64: return use(std::int64_t{});
    case IndexedType::u16: return use(std::uint16_t{});
  }
}

}  // namespace

std::uint64_t bytes_of(IndexedType type) {
  return find_type(static_cast<std::uint64_t>(type))->bytes;
}

std::string_view name_of(IndexedType type) {
  return find_type(static_cast<std::uint64_t>(type))->name;
}

IndexedType indexed_type(std::string_view name) {
  std::string names;
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
    names += fmt::format("{}{}", names.empty() ? "" : " ", row.name);
  }
  fail(ErrorKind::configuration, "there is no type of tokens \"{}\"; choose one of: {}", name, names);
}

IndexedType indexed_type_for(std::uint64_t vocab_size) {
  constexpr std::uint64_t kBelowForShort = 65500;
  return vocab_size < kBelowForShort ? IndexedType::u16 : IndexedType::i32;
}

/// The numbers of an index file from front to back, a part of it in memory at a time.
class IndexedReader::Fields {
 public:
  explicit Fields(const std::string& path) : file_(path) {}

  const std::string& path() const { return file_.path(); }
  std::uint64_t bytes_left() const { return file_.bytes() - offset_; }

  std::string_view take(std::uint64_t bytes) {
    if (bytes > buffer_.size() - position_) {
      verify(bytes <= bytes_left(), ErrorKind::data, "{}: ends in the middle of its index", path());
      file_.read(offset_, std::min(std::max(bytes, kReadBytes), bytes_left()), buffer_);
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
  std::uint64_t offset_ = 0;  // of what is taken next
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

namespace {

IndexedType checked_type(std::uint64_t code, const std::string& path) {
  const TypeRow* row = find_type(code);
  verify(row != nullptr, ErrorKind::data, "{}: elements of type {}{}: not token ids", path, code,
         code == 6 || code == 7 ? ", floating-point numbers" : ", which Megatron does not have");
  return row->type;
}

}  // namespace

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
  verify(rest == 0, ErrorKind::data, "{}: {} bytes behind its end{}", index_path_, rest,
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
      return wrong(fmt::format("entry {} is {}, behind {} and with {} sequences", i, entry, before, sequences()));
    before = static_cast<std::uint64_t>(entry);
    each_a_document = each_a_document && before == i;
    if (each_a_document) continue;
    if (documents_.empty()) {  // the first that differs, behind i that were their numbers, or the first of all
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
  internal_check(first <= tokens_ && count <= tokens_ - first, "tokens beyond the end of the data");
  with_type(type_, [&](auto token) {
    using Token = decltype(token);
    while (count > 0) {
      const std::uint64_t here = std::min(count, kReadBytes / sizeof(Token));
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

IndexedWriter::IndexedWriter(const std::string& prefix, IndexedType type)
    : bin_path_(prefix + ".bin"), index_path_(prefix + ".idx"), type_(type) {
  std::error_code error;
  std::filesystem::create_directories(folder_of(prefix), error);
  verify(!error, ErrorKind::filesystem, "{}: cannot make this folder: {}", folder_of(prefix), error.message());
  publication_.add(bin_path_ + ".tmp", bin_path_);
  publication_.add(index_path_ + ".tmp", index_path_);  // last: an index of other tokens would be worse than none
  bin_ = std::fopen((bin_path_ + ".tmp").c_str(), "wb");
  const int reason = errno;
  verify(bin_ != nullptr, ErrorKind::filesystem, "{}.tmp: cannot write it: {}", bin_path_, std::strerror(reason));
}

IndexedWriter::~IndexedWriter() {
  if (bin_ != nullptr) std::fclose(bin_);
  if (index_ != nullptr) std::fclose(index_);
}

/// Writes the buffer if it has grown to so many bytes.
void IndexedWriter::flush_if(std::FILE* file, const std::string& path, std::size_t bytes) {
  if (buffer_.size() < bytes) return;
  const std::size_t written = std::fwrite(buffer_.data(), 1, buffer_.size(), file);
  const int reason = errno;
  verify(written == buffer_.size(), ErrorKind::filesystem, "{}.tmp: cannot write it: {}", path, std::strerror(reason));
  buffer_.clear();
}

void IndexedWriter::add_document(std::span<const std::int32_t> tokens) {
  verify(tokens.size() <= static_cast<std::size_t>(kLongest), ErrorKind::data,
         "document {} has {} tokens; the format holds {} at most", documents(), tokens.size(), kLongest);
  with_type(type_, [&](auto token) {
    using Token = decltype(token);
    for (const std::int32_t id : tokens) {
      token = static_cast<Token>(id);
      if (static_cast<std::int64_t>(token) != id) {
        fail(ErrorKind::data, "document {}: token id {} does not fit into {}; choose another --dtype", documents(), id,
             name_of(type_));
      }
      buffer_.append(reinterpret_cast<const char*>(&token), sizeof(Token));
      if (buffer_.size() >= kReadBytes) flush_if(bin_, bin_path_, kReadBytes);
    }
  });
  lengths_.push_back(static_cast<std::uint32_t>(tokens.size()));
  tokens_ += tokens.size();
}

void IndexedWriter::write_index() {
  index_ = std::fopen((index_path_ + ".tmp").c_str(), "wb");
  const int reason = errno;
  verify(index_ != nullptr, ErrorKind::filesystem, "{}.tmp: cannot write it: {}", index_path_, std::strerror(reason));
  const auto put = [&](auto number) {
    buffer_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    flush_if(index_, index_path_, kReadBytes);
  };
  buffer_.assign(kMmapMagic);
  put(kVersion);
  put(static_cast<std::uint8_t>(type_));
  put(documents());
  put(documents() + 1);
  for (const std::uint32_t length : lengths_) put(length);
  std::uint64_t offset = 0;
  for (const std::uint32_t length : lengths_) {
    put(offset);
    offset += length * bytes_of(type_);
  }
  for (std::uint64_t document = 0; document <= documents(); ++document) put(document);
  flush_if(index_, index_path_, 0);
}

void IndexedWriter::finish() {
  const auto close = [](std::FILE*& file, const std::string& path) {
    const bool closed = std::fclose(std::exchange(file, nullptr)) == 0;
    const int reason = errno;
    verify(closed, ErrorKind::filesystem, "{}.tmp: cannot write it: {}", path, std::strerror(reason));
    sync_path(path + ".tmp");
  };
  flush_if(bin_, bin_path_, 0);
  close(bin_, bin_path_);
  write_index();
  close(index_, index_path_);
  publication_.publish();
  publication_.commit();
}

}  // namespace megatron
