#include "data/hdf5/hdf5_metadata.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "data/hdf5/hdf5_checksum.h"

namespace megatron {

namespace {

constexpr std::uint64_t kSuperblockBytes = 48;
constexpr std::string_view kSignature = "\211HDF\r\n\032\n";
constexpr std::uint64_t kLargestBlock = std::uint64_t{1} << 20;

[[noreturn]] void refuse_file(const RegularFile& file, std::string_view reason) {
  fail(file.kind(), "{}: damaged, or not made by this program: {}", file.path(), reason);
}

bool starts_with(std::span<const std::byte> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

}  // namespace

void Hdf5Fields::refuse(std::string_view reason) const {
  refuse_file(*file_, reason);
}

std::span<const std::byte> Hdf5Fields::take(std::uint64_t bytes) {
  if (bytes > bytes_.size()) refuse("a block of its metadata ends too early");
  const auto taken = bytes_.first(bytes);
  bytes_ = bytes_.subspan(bytes);
  return taken;
}

std::uint64_t Hdf5Fields::number(std::size_t bytes) {
  std::uint64_t value = 0;
  std::size_t shift = 0;
  for (const std::byte byte : take(bytes)) {
    value |= std::to_integer<std::uint64_t>(byte) << shift;
    shift += 8;
  }
  return value;
}

std::string Hdf5Fields::text(std::uint64_t bytes) {
  const auto taken = take(bytes);
  return {reinterpret_cast<const char*>(taken.data()), taken.size()};
}

Hdf5Storage::Hdf5Storage(std::shared_ptr<const RegularFile> file) : file_(std::move(file)) {
  std::vector<std::byte> start(std::min(file_->bytes(), kSuperblockBytes));
  file_->read(0, start.data(), start.size());
  verify(start.size() > kSignature.size() && starts_with(start, kSignature), file_->kind(),
         "{}: not an HDF5 file, or one whose beginning is damaged", file_->path());
  Hdf5Fields fields(start, *file_);
  fields.take(kSignature.size());
  const std::uint64_t version = fields.number(1);
  verify(
      version == 3, file_->kind(),
      "{}: HDF5 superblock version {}, but this program writes and reads version 3 only; make the file again with it",
      file_->path(), version);
  const std::uint64_t address_bytes = fields.number(1), length_bytes = fields.number(1), open_marks = fields.number(1);
  const std::uint64_t base = fields.address(), extension = fields.address(), end = fields.address();
  root_ = fields.address();
  if (address_bytes != 8 || length_bytes != 8 || base != 0 || extension != kNoAddress) refuse("an unknown superblock");
  block(0, kSuperblockBytes);
  verify(open_marks == 0, file_->kind(), "{}: the program that wrote it did not finish", file_->path());
  verify(end == file_->bytes(), file_->kind(), "{}: has {} bytes instead of {}: cut off or changed", file_->path(),
         file_->bytes(), end);
}

void Hdf5Storage::refuse(std::string_view reason) const {
  refuse_file(*file_, reason);
}

void Hdf5Storage::check_lies_in_file(std::uint64_t address, std::uint64_t bytes) const {
  if (address > file_->bytes() || bytes > file_->bytes() - address) refuse("a block lies outside of the file");
}

void Hdf5Storage::claim(std::uint64_t address, std::uint64_t bytes) {
  check_lies_in_file(address, bytes);
  if (bytes == 0) return;
  const auto next = claims_.upper_bound(address);
  const bool overlaps = (next != claims_.end() && next->first < address + bytes) ||
                        (next != claims_.begin() && std::prev(next)->second > address);
  if (overlaps) refuse("two of its blocks overlap");
  claims_.emplace_hint(next, address, address + bytes);
}

std::vector<std::byte> Hdf5Storage::block(std::uint64_t address, std::uint64_t bytes) {
  if (bytes < 4 || bytes > kLargestBlock) refuse("a block of its metadata has no possible size");
  claim(address, bytes);
  std::vector<std::byte> block(bytes);
  file_->read(address, block.data(), bytes);
  const std::uint64_t checksum = Hdf5Fields(std::span(block).last(4), *file_).number(4);
  block.resize(bytes - 4);
  if (!metadata_checksum_holds(block, static_cast<std::uint32_t>(checksum)))
    refuse("a checksum of its metadata is wrong");
  return block;
}

std::vector<std::byte> Hdf5Storage::peek(std::uint64_t address, std::uint64_t bytes, std::string_view signature) const {
  check_lies_in_file(address, 0);
  std::vector<std::byte> start(std::min(bytes, file_->bytes() - address));
  file_->read(address, start.data(), start.size());
  if (!starts_with(start, signature)) refuse(fmt::format("there is no block {} where it should be", signature));
  return start;
}

}  // namespace megatron
