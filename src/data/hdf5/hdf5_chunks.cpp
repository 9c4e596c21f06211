#include "data/hdf5/hdf5_chunks.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "data/hdf5/hdf5_checksum.h"

namespace megatron {

namespace {

// The library's parameters of the array, which this program leaves as they are: it holds up to 2^32 elements, 4 of them
// in the index block. The data blocks have 16 elements and more; those of more than 1024 are cut into pages. Level l
// has 2^(l/2) data blocks of 16 * 2^((l+1)/2) elements. The index block has the addresses of the data blocks of the
// levels up to 3, and for each of the others that of a secondary block, which has those of its level.
constexpr std::string_view kParameters{"\x20\x04\x10\x04\x0a", 5};
constexpr std::uint64_t kHeaderBytes = 72, kInIndex = 4, kSmallestBlock = 16, kPageElements = 1024;
constexpr std::uint64_t kLevelsInIndex = 4, kBlocksInIndex = 6, kLevels = 29;
constexpr std::uint64_t kFrontBytes = 14, kPositionBytes = 4, kAddressBytes = 8;

constexpr std::uint64_t blocks_at(std::uint64_t level) {
  return std::uint64_t{1} << level / 2;
}

constexpr std::uint64_t elements_at(std::uint64_t level) {
  return kSmallestBlock << (level + 1) / 2;
}

/// The pages of a data block; 0 if it is not cut.
constexpr std::uint64_t pages_at(std::uint64_t level) {
  return elements_at(level) > kPageElements ? elements_at(level) / kPageElements : 0;
}

class ExtensibleArray {
 public:
  ExtensibleArray(Hdf5Storage& storage, std::uint64_t address, std::uint64_t chunks, std::uint64_t stored_bytes)
      : storage_(storage), address_(address), chunks_(chunks), stored_bytes_(stored_bytes) {}

  std::vector<std::uint64_t> read() {
    const std::uint64_t index = read_header();
    addresses_.reserve(chunks_);
    const std::vector<std::byte> block =
        storage_.block(index, kFrontBytes + kInIndex * element_bytes_ +
                                  (kBlocksInIndex + kLevels - kLevelsInIndex) * kAddressBytes + kChecksumBytes);
    Hdf5Fields fields = behind_front(block, "EAIB");
    take_elements(fields, kInIndex);
    for (std::uint64_t level = 0; level < kLevelsInIndex; ++level) read_blocks(fields, level);
    for (std::uint64_t level = kLevelsInIndex; level < kLevels && !done(); ++level) {
      read_secondary_block(fields.address(), level);
    }
    if (!done()) storage_.refuse("a list of too many chunks");
    return std::move(addresses_);
  }

 private:
  bool done() const { return addresses_.size() == chunks_; }

  /// Returns where the index block is.
  std::uint64_t read_header() {
    const std::vector<std::byte> block = storage_.block(address_, kHeaderBytes);
    Hdf5Fields fields(block, storage_.file());
    const bool signature = fields.text(4) == "EAHD", version = fields.number(1) == 0, filtered = fields.number(1) == 1;
    element_bytes_ = fields.number(1);  // an address of 8 bytes, a size, a mask of 4 bytes
    const bool sound = signature && version && filtered && element_bytes_ > 12 && element_bytes_ <= 20 &&
                       fields.text(kParameters.size()) == kParameters;
    if (!sound) storage_.refuse("a list of chunks of an unknown form");
    fields.take(48);  // statistics
    return fields.address();
  }

  /// The block's contents after its signature, its version, what its elements are and the header's address.
  Hdf5Fields behind_front(std::span<const std::byte> block, std::string_view signature) {
    Hdf5Fields fields(block, storage_.file());
    const bool sound =
        fields.text(4) == signature && fields.number(1) == 0 && fields.number(1) == 1 && fields.address() == address_;
    if (!sound) storage_.refuse("a part of a list of chunks that does not belong to it");
    return fields;
  }

  void take_elements(Hdf5Fields& fields, std::uint64_t most) {
    for (std::uint64_t i = 0; i < most; ++i) {
      const std::uint64_t address = fields.address(), bytes = fields.number(element_bytes_ - 12),
                          mask = fields.number(4);
      if (done()) continue;
      verify(address != kNoAddress, storage_.file().kind(), "{}: {} of {} chunks are missing", storage_.file().path(),
             chunks_ - addresses_.size(), chunks_);
      if (bytes != stored_bytes_ || mask != 0) storage_.refuse("a chunk that does not have the size of its contents");
      storage_.claim(address, bytes);
      addresses_.push_back(address);
    }
  }

  /// The data blocks of a level, whose addresses come next.
  void read_blocks(Hdf5Fields& fields, std::uint64_t level) {
    for (std::uint64_t i = 0; i < blocks_at(level); ++i) {
      const std::uint64_t address = fields.address();
      if (!done()) read_data_block(address, level);
    }
  }

  void read_data_block(std::uint64_t address, std::uint64_t level) {
    const std::uint64_t front = kFrontBytes + kPositionBytes + kChecksumBytes, pages = pages_at(level);
    const std::vector<std::byte> block =
        storage_.block(address, front + (pages == 0 ? elements_at(level) * element_bytes_ : 0));
    Hdf5Fields fields = behind_front(block, "EADB");
    fields.take(kPositionBytes);
    if (pages == 0) return take_elements(fields, elements_at(level));
    const std::uint64_t page_bytes = kPageElements * element_bytes_ + kChecksumBytes;
    for (std::uint64_t page = 0; page < pages && !done(); ++page) {
      const std::vector<std::byte> elements = storage_.block(address + front + page * page_bytes, page_bytes);
      Hdf5Fields here(elements, storage_.file());
      take_elements(here, kPageElements);
    }
  }

  void read_secondary_block(std::uint64_t address, std::uint64_t level) {
    const std::uint64_t marks = blocks_at(level) * ((pages_at(level) + 7) / 8);  // bytes that mark the written pages
    const std::vector<std::byte> block = storage_.block(
        address, kFrontBytes + kPositionBytes + marks + blocks_at(level) * kAddressBytes + kChecksumBytes);
    Hdf5Fields fields = behind_front(block, "EASB");
    fields.take(kPositionBytes + marks);
    read_blocks(fields, level);
  }

  Hdf5Storage& storage_;
  std::uint64_t address_, chunks_, stored_bytes_, element_bytes_ = 0;
  std::vector<std::uint64_t> addresses_;
};

}  // namespace

std::vector<std::uint64_t> read_chunk_addresses(Hdf5Storage& storage, std::uint64_t array, std::uint64_t chunks,
                                                std::uint64_t stored_bytes) {
  return ExtensibleArray(storage, array, chunks, stored_bytes).read();
}

}  // namespace megatron
