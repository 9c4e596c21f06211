#include "data/hdf5/hdf5_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "data/hdf5/hdf5_checksum.h"
#include "data/hdf5/hdf5_chunks.h"
#include "data/hdf5/hdf5_file.h"
#include "data/hdf5/hdf5_object.h"

namespace megatron {

namespace {

constexpr std::uint64_t kLargestChunkBytes = std::uint64_t{1} << 20;

}  // namespace

// --- attributes ---------------------------------------------------------------------------------------------------

Hdf5Attributes::Hdf5Attributes(std::shared_ptr<const RegularFile> file, std::string name)
    : file_(std::move(file)), name_(std::move(name)) {}

std::string Hdf5Attributes::where() const {
  return name_.empty() ? file_->path() : fmt::format("{}: /{}", file_->path(), name_);
}

bool Hdf5Attributes::has(const std::string& name) const {
  return std::any_of(attributes_->begin(), attributes_->end(),
                     [&](const Hdf5Attribute& attribute) { return attribute.name == name; });
}

const Hdf5Attribute& Hdf5Attributes::find(const std::string& name) const {
  const auto found = std::find_if(attributes_->begin(), attributes_->end(),
                                  [&](const Hdf5Attribute& attribute) { return attribute.name == name; });
  verify(found != attributes_->end(), kind(), "{}: has no attribute {}", where(), name);
  return *found;
}

std::uint64_t Hdf5Attributes::read_u64(const std::string& name) const {
  const Hdf5Attribute& attribute = find(name);
  verify(attribute.number.has_value(), kind(), "{}: attribute {} is not one unsigned number of 64 bits", where(), name);
  return *attribute.number;
}

std::string Hdf5Attributes::read_text(const std::string& name) const {
  const Hdf5Attribute& attribute = find(name);
  verify(attribute.text.has_value(), kind(), "{}: attribute {} is not a text", where(), name);
  return *attribute.text;
}

// --- opening ------------------------------------------------------------------------------------------------------

void Hdf5Array::open(Hdf5Storage& storage, const Hdf5ObjectHeader& header) {
  attributes_ = std::make_shared<const std::vector<Hdf5Attribute>>(header.attributes);
  verify(header.is_dataset(), kind(), "{}: not a dataset", where());
  verify(header.refusal.empty(), kind(), "{}: {}", where(), header.refusal);
  verify(header.type.has_value(), kind(),
         "{}: its element type is not one of u8 u16 u32 u64 i32 i64 f32 f64 (little endian)", where());
  verify(header.elements.has_value(), kind(), "{}: not one-dimensional", where());
  type_ = *header.type;
  elements_ = *header.elements;
  // The extent is checked by division first: no product below can overflow.
  verify(elements_ <= file_->bytes() / size_of(type_), kind(),
         "{}: claims {} elements of {} bytes, more than the file of {} bytes can hold", where(), elements_,
         size_of(type_), file_->bytes());
  if (header.layout->chunks) return open_chunks(storage, header);
  verify(!header.fletcher32, kind(), "{}: filters without chunks", where());
  if (elements_ == 0) return;
  verify(header.layout->address != kNoAddress, kind(), "{}: its data were never written", where());
  verify(header.layout->bytes == bytes(), kind(), "{}: has {} bytes, but its shape says {}", where(),
         header.layout->bytes, bytes());
  address_ = header.layout->address;
  storage.claim(address_, bytes());
}

void Hdf5Array::open_chunks(Hdf5Storage& storage, const Hdf5ObjectHeader& header) {
  const Hdf5ChunkIndex& index = *header.layout->chunks;
  const std::uint64_t size = size_of(type_);
  verify(header.fletcher32, kind(), "{}: chunks without checksum, which are refused", where());
  verify(index.element_bytes == size && index.chunk_elements > 0 && index.chunk_elements <= kLargestChunkBytes / size,
         kind(), "{}: chunks of {} elements of {} bytes are refused (at most {} KiB)", where(), index.chunk_elements,
         index.element_bytes, kLargestChunkBytes >> 10);
  chunk_elements_ = index.chunk_elements;
  const std::uint64_t chunks = (elements_ + chunk_elements_ - 1) / chunk_elements_;
  const std::uint64_t stored_bytes = chunk_elements_ * size + kChecksumBytes;
  if (chunks == 0) return;
  verify(index.address != kNoAddress, kind(), "{}: its data were never written", where());
  verify(chunks <= file_->bytes() / stored_bytes, kind(),
         "{}: claims {} chunks of {} bytes, more than the file of {} bytes can hold", where(), chunks, stored_bytes,
         file_->bytes());
  chunks_ = read_chunk_addresses(storage, index.address, chunks, stored_bytes);
}

/// Takes the hashes of this dataset's chunks out of another one.
void Hdf5Array::take_hashes(const Hdf5Array& table) {
  verify(table.type_ == Hdf5Type::u64 && table.chunk_elements_ == 0 && table.elements_ == chunks_.size(), kind(),
         "{}: not a table of the hashes of {} chunks", table.where(), chunks_.size());
  hashes_ = table.read_all<std::uint64_t>();
  verify(hash_holds(std::as_bytes(std::span(hashes_)), elements_, table.read_u64(kHashOfHashes)), kind(),
         "{}: the hashes are damaged", table.where());
}

Hdf5Reader::Hdf5Reader(const std::string& path, ErrorKind kind)
    : Hdf5Attributes(std::make_shared<const RegularFile>(path, kind), "") {
  Hdf5Storage storage(file_);
  const Hdf5ObjectHeader root = read_object_header(storage, storage.root());
  attributes_ = std::make_shared<const std::vector<Hdf5Attribute>>(root.attributes);
  std::vector<Hdf5Array> tables;
  for (const Hdf5Link& link : root.links) {
    verify(link.address != kNoAddress, kind, "{}: /{}: a soft or external link, which is refused", path, link.name);
    Hdf5Array array(file_, link.name);
    array.open(storage, read_object_header(storage, link.address));
    (link.name.ends_with(kHashesOf) ? tables : arrays_).push_back(std::move(array));
  }
  std::sort(arrays_.begin(), arrays_.end(), [](const Hdf5Array& a, const Hdf5Array& b) { return a.name_ < b.name_; });
  const auto same = [](const Hdf5Array& a, const Hdf5Array& b) { return a.name_ == b.name_; };
  verify(std::adjacent_find(arrays_.begin(), arrays_.end(), same) == arrays_.end(), kind,
         "{}: two datasets of one name", path);
  for (const Hdf5Array& table : tables) {
    const std::string of = table.name_.substr(0, table.name_.size() - kHashesOf.size());
    const auto array = std::find_if(arrays_.begin(), arrays_.end(), [&](const Hdf5Array& a) { return a.name_ == of; });
    verify(array != arrays_.end(), kind, "{}: hashes of a dataset that is not there", table.where());
    array->take_hashes(table);
  }
}

std::vector<std::string> Hdf5Reader::datasets() const {
  std::vector<std::string> names;
  for (const Hdf5Array& array : arrays_) names.push_back(array.name_);
  return names;
}

Hdf5Array Hdf5Reader::open_dataset(const std::string& name) const {
  const auto found =
      std::find_if(arrays_.begin(), arrays_.end(), [&](const Hdf5Array& array) { return array.name_ == name; });
  verify(found != arrays_.end(), kind(), "{}: /{}: there is no such dataset", path(), name);
  return *found;
}

// --- reading ------------------------------------------------------------------------------------------------------

void Hdf5Array::read(std::uint64_t first, void* values, std::uint64_t count) const {
  internal_check(first <= elements_ && count <= elements_ - first, "access beyond the end of a dataset", first, count,
                 elements_);
  const std::uint64_t size = size_of(type_);
  if (chunk_elements_ == 0) return file_->read(address_ + first * size, values, count * size);
  auto* to = static_cast<std::byte*>(values);
  while (count > 0) {
    const std::uint64_t chunk = first / chunk_elements_, from = first % chunk_elements_;
    const std::uint64_t here = std::min(count, chunk_elements_ - from);
    if (buffered_ != chunk) read_chunk(chunk);
    std::memcpy(to, buffer_.data() + from * size, here * size);
    first += here;
    count -= here;
    to += here * size;
  }
}

void Hdf5Array::read_chunk(std::uint64_t index) const {
  const std::uint64_t size = size_of(type_), chunk_bytes = chunk_elements_ * size;
  buffered_ = ~std::uint64_t{0};  // nothing, if what follows throws
  buffer_.resize(chunk_bytes + kChecksumBytes);
  file_->read(chunks_[index], buffer_.data(), buffer_.size());
  const std::uint64_t first = index * chunk_elements_, count = std::min(chunk_elements_, elements_ - first);
  const std::span<const std::byte> chunk = std::span(buffer_).first(chunk_bytes), contents = chunk.first(count * size);
  if (hashed()) {
    verify(hash_holds(contents, 0, hashes_[index]), kind(),
           "{}: elements {} to {} are not what was written: the disk has damaged them, or something has changed them",
           where(), first, first + count - 1);
  } else {
    const std::uint64_t checksum = Hdf5Fields(std::span(buffer_).last(kChecksumBytes), *file_).number(kChecksumBytes);
    verify(chunk_checksum_holds(chunk, static_cast<std::uint32_t>(checksum)), kind(),
           "{}: elements {} to {} are damaged: their checksum is wrong", where(), first, first + count - 1);
    // The checksum of zeros is zero, so a block that the disk has lost looks whole.
    const bool zeros =
        std::all_of(contents.begin(), contents.end(), [](std::byte byte) { return byte == std::byte{}; });
    verify(
        !zeros, kind(),
        "{}: elements {} to {} are all 0, which the checksum of this older file cannot tell from lost data; make the "
        "shards again with megatron_preprocess",
        where(), first, first + count - 1);
  }
  buffered_ = index;
}

}  // namespace megatron
