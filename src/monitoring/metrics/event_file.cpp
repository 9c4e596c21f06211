#include "monitoring/metrics/event_file.h"

#include <array>
#include <bit>
#include <cstring>

namespace megatron {

namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0U);
    table[byte] = value;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

/// Fields of a message, of the kinds that wire format has. Numbers are those of TensorFlow's .proto files.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}
std::string key(int field, int wire_type) {
  return varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire_type));
}
std::string whole_number(int field, std::int64_t value) {
  return key(field, 0) + varint(static_cast<std::uint64_t>(value));
}
std::string double_number(int field, double value) {
  return key(field, 1) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string bytes(int field, std::string_view value) {
  return key(field, 2) + varint(value.size()) + std::string(value);
}
std::string float_number(int field, float value) {
  return key(field, 5) + little_endian(std::bit_cast<std::uint32_t>(value));
}

// Event: wall_time 1, step 2, file_version 3, summary 5, session_log 7.
std::string event(double time, std::int64_t step, const std::string& what) {
  return tf_record(double_number(1, time) + (step == 0 ? "" : whole_number(2, step)) + what);
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view data) {
  std::uint32_t crc = 0xffffffffU;
  for (const char c : data) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

std::string tf_record(std::string_view data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + little_endian(masked_crc32c(length)) + std::string(data) + little_endian(masked_crc32c(data));
}

std::string version_event(double time) {
  return event(time, 0, bytes(3, "brain.Event:2"));
}

std::string start_event(double time, std::int64_t step) {
  return event(time, step, bytes(7, whole_number(1, 1)));  // SessionLog: status 1 = START
}

// Summary: value 1; of it tag 1, simple_value 2, tensor 8, metadata 9.
std::string scalars_event(double time, std::int64_t step, std::span<const TaggedScalar> scalars) {
  std::string values;
  for (const auto& [tag, value] : scalars) {
    values += bytes(1, bytes(1, tag) + float_number(2, static_cast<float>(value)));
  }
  return event(time, step, bytes(5, values));
}

std::string text_event(double time, std::int64_t step, std::string_view tag, std::string_view text) {
  // SummaryMetadata: plugin_data 1 with its plugin_name 1, data_class 4 = tensor. TensorProto: dtype 1 = string,
  // tensor_shape 2 (none: one value), string_val 8.
  const std::string metadata = bytes(1, bytes(1, "text")) + whole_number(4, 2);
  const std::string tensor = whole_number(1, 7) + bytes(2, "") + bytes(8, text);
  return event(time, step, bytes(5, bytes(1, bytes(1, tag) + bytes(8, tensor) + bytes(9, metadata))));
}

}  // namespace megatron
