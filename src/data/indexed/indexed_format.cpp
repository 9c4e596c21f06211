#include "data/indexed/indexed_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "base/core/error.h"

namespace megatron {

static_assert(std::endian::native == std::endian::little, "numbers are read and written as they lie in memory");

namespace {

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

std::optional<IndexedType> indexed_type_of(std::uint64_t code) {
  const TypeRow* row = find_type(code);
  return row == nullptr ? std::nullopt : std::optional(row->type);
}

}  // namespace megatron
