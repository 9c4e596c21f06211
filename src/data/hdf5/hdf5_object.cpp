#include "data/hdf5/hdf5_object.h"

#include <algorithm>
#include <array>
#include <utility>

namespace megatron {

namespace {

constexpr std::array kTypes{Hdf5Type::u8,  Hdf5Type::u16, Hdf5Type::u32, Hdf5Type::u64,
                            Hdf5Type::i32, Hdf5Type::i64, Hdf5Type::f32, Hdf5Type::f64};
constexpr std::size_t kMostBlocks = 64;  ///< in one object header

/// The kinds of messages that an object header is made of.
enum Message : std::uint64_t {
  kShape = 0x01,
  kLinkInfo = 0x02,
  kType = 0x03,
  kLink = 0x06,
  kExternalFiles = 0x07,
  kLayout = 0x08,
  kFilters = 0x0B,
  kAttribute = 0x0C,
  kContinuation = 0x10,
  kSymbolTable = 0x11,
  kAttributeInfo = 0x15,
};

/// The length of a shape: 1 of a single value; none if it has not got one dimension.
struct Shape {
  bool scalar = false;
  std::optional<std::uint64_t> elements;
};

Shape parse_shape(Hdf5Fields fields) {
  const std::uint64_t version = fields.number(1), dimensions = fields.number(1);
  fields.number(1);  // flags: whether a largest length follows, which does not matter
  const std::uint64_t kind = fields.number(1);
  if (version != 2) fields.refuse("an unknown version of a shape");
  if (kind == 0 && dimensions == 0) return {true, 1};
  if (kind != 1 || dimensions != 1) return {};
  return {false, fields.number(8)};
}

bool is_float(Hdf5Type type) {
  return type == Hdf5Type::f32 || type == Hdf5Type::f64;
}

struct TypeMessage {
  std::uint64_t version = 0, cls = 0, bits = 0, size = 0;
  static constexpr std::uint64_t kNumber = 0, kFloat = 1, kText = 3;
};

TypeMessage parse_type_front(Hdf5Fields& fields) {
  TypeMessage message;
  const std::uint64_t first = fields.number(1);
  message.version = first >> 4;
  message.cls = first & 15;
  message.bits = fields.number(3);
  message.size = fields.number(4);
  return message;
}

/// The layout of bits in a number of this type: exactly as HDF5 stores its standard little-endian types.
bool is_type(Hdf5Type type, const TypeMessage& message, Hdf5Fields properties) {
  const std::uint64_t bits = 8 * size_of(type);
  if (message.version < 1 || message.version > 3 || message.size != size_of(type)) return false;
  if (message.cls != (is_float(type) ? TypeMessage::kFloat : TypeMessage::kNumber)) return false;
  if (properties.number(2) != 0 || properties.number(2) != bits) return false;
  if (!is_float(type)) {
    const bool has_sign = type == Hdf5Type::i32 || type == Hdf5Type::i64;
    return message.bits == (has_sign ? 8u : 0u);
  }
  const bool narrow = type == Hdf5Type::f32;
  const std::uint64_t mantissa = narrow ? 23 : 52, exponent = narrow ? 8 : 11, bias = narrow ? 127 : 1023;
  return message.bits == ((bits - 1) << 8 | 0x20) && properties.number(1) == mantissa &&
         properties.number(1) == exponent && properties.number(1) == 0 && properties.number(1) == mantissa &&
         properties.number(4) == bias;
}

std::optional<Hdf5Type> parse_type(Hdf5Fields fields) {
  const TypeMessage message = parse_type_front(fields);
  if (message.cls != TypeMessage::kNumber && message.cls != TypeMessage::kFloat) return std::nullopt;
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](Hdf5Type type) { return is_type(type, message, fields); });
  return found == kTypes.end() ? std::nullopt : std::optional(*found);
}

/// An attribute of another type than those this program writes has neither number nor text.
Hdf5Attribute parse_attribute(Hdf5Fields fields) {
  const std::uint64_t version = fields.number(1), flags = fields.number(1);
  const std::uint64_t name_bytes = fields.number(2), type_bytes = fields.number(2), shape_bytes = fields.number(2);
  fields.number(1);  // the name's character set
  if (version != 3 || flags != 0 || name_bytes == 0) fields.refuse("an unknown kind of attribute");
  Hdf5Attribute attribute{fields.text(name_bytes - 1)};
  fields.take(1);  // the name's NUL
  Hdf5Fields type = fields.part(type_bytes);
  const Shape shape = parse_shape(fields.part(shape_bytes));
  if (!shape.scalar) return attribute;
  const std::optional<Hdf5Type> number = parse_type(type);
  if (number == Hdf5Type::u64) attribute.number = fields.number(8);
  const TypeMessage message = parse_type_front(type);
  if (message.cls != TypeMessage::kText) return attribute;
  const std::string padded = fields.text(message.size);
  attribute.text = padded.substr(0, padded.find('\0'));
  return attribute;
}

Hdf5Link parse_link(Hdf5Fields fields) {
  const std::uint64_t version = fields.number(1), flags = fields.number(1);
  if (version != 1) fields.refuse("an unknown version of a link");
  const std::uint64_t kind = (flags & 8) != 0 ? fields.number(1) : 0;
  if ((flags & 4) != 0) fields.number(8);   // its place in the order of creation
  if ((flags & 16) != 0) fields.number(1);  // the name's character set
  const std::uint64_t name_bytes = fields.number(std::size_t{1} << (flags & 3));
  Hdf5Link link{fields.text(name_bytes), kNoAddress};
  if (kind == 0) link.address = fields.address();
  return link;
}

Hdf5Layout parse_chunks(Hdf5Fields& fields, Hdf5ObjectHeader& header) {
  constexpr std::uint64_t kExtensibleArray = 4;
  const std::uint64_t flags = fields.number(1), dimensions = fields.number(1), width = fields.number(1);
  if (dimensions != 2 || width == 0 || width > 8) {  // the second one is the size of an element
    header.refusal = "chunks of an unknown form, which are refused";
    return {};
  }
  Hdf5ChunkIndex chunks;
  chunks.chunk_elements = fields.number(width);
  chunks.element_bytes = fields.number(width);
  const std::uint64_t index = fields.number(1);
  if (flags != 0 || index != kExtensibleArray) {
    header.refusal = "chunks of a dataset that did not grow, which are refused";
    return {};
  }
  fields.take(5);  // the array's parameters, which it repeats
  chunks.address = fields.address();
  return {kNoAddress, 0, chunks};
}

Hdf5Layout parse_layout(Hdf5Fields fields, Hdf5ObjectHeader& header) {
  enum : std::uint64_t { kCompact, kContiguous, kChunked, kVirtual };
  const std::uint64_t version = fields.number(1), cls = fields.number(1);
  if (version != 3 && version != 4) fields.refuse("an unknown version of a dataset's layout");
  if (cls == kContiguous) {
    const std::uint64_t address = fields.address();
    return {address, fields.number(8)};
  }
  if (cls == kChunked && version == 4) return parse_chunks(fields, header);
  header.refusal = cls == kVirtual   ? "a virtual dataset, which is refused"
                   : cls == kCompact ? "a compact dataset, which is refused"
                                     : "a dataset whose layout is refused";
  return {};
}

void parse_filters(Hdf5Fields fields, Hdf5ObjectHeader& header) {
  constexpr std::uint64_t kFletcher32 = 3;
  const std::uint64_t version = fields.number(1), filters = fields.number(1);
  const std::uint64_t filter = version == 2 && filters == 1 ? fields.number(2) : ~std::uint64_t{0};
  header.fletcher32 = filter == kFletcher32;
  if (!header.fletcher32) header.refusal = "a filter other than fletcher32, which is refused";
}

/// Links or attributes beyond a handful lie in a heap, which this program does not write.
void check_not_in_heap(Hdf5Fields fields, std::size_t order_bytes) {
  const std::uint64_t version = fields.number(1), flags = fields.number(1);
  if ((flags & 1) != 0) fields.take(order_bytes);
  if (version != 0 || fields.address() != kNoAddress) fields.refuse("too many links or attributes in one object");
}

struct HeaderBlock {
  std::uint64_t address = 0, bytes = 0;
};

void parse_message(std::uint64_t kind, Hdf5Fields fields, Hdf5ObjectHeader& header, std::vector<HeaderBlock>& more) {
  switch (kind) {
    case kShape:
      header.has_shape = true;
      if (const Shape shape = parse_shape(fields); !shape.scalar) header.elements = shape.elements;
      return;
    case kType:
      header.has_type = true;
      header.type = parse_type(fields);
      return;
    case kLayout: header.layout = parse_layout(fields, header); return;
    case kFilters: return parse_filters(fields, header);
    case kLink: header.links.push_back(parse_link(fields)); return;
    case kAttribute: header.attributes.push_back(parse_attribute(fields)); return;
    case kLinkInfo: return check_not_in_heap(fields, 8);
    case kAttributeInfo: return check_not_in_heap(fields, 2);
    case kSymbolTable: fields.refuse("a group of an older format");
    case kExternalFiles: header.refusal = "its data lie in another file, which is refused"; return;
    case kContinuation: {
      const std::uint64_t address = fields.address();
      more.push_back({address, fields.number(8)});
      return;
    }
    default: return;  // fill values, times: nothing that reading depends on
  }
}

void parse_messages(Hdf5Fields fields, bool with_order, Hdf5ObjectHeader& header, std::vector<HeaderBlock>& more) {
  constexpr std::uint64_t kShared = 2;
  const std::size_t front = with_order ? 6 : 4;
  while (fields.left() >= front) {  // fewer bytes are a gap
    const std::uint64_t kind = fields.number(1), bytes = fields.number(2), flags = fields.number(1);
    if (with_order) fields.number(2);
    if ((flags & kShared) != 0) fields.refuse("a type or shape that objects share");
    parse_message(kind, fields.part(bytes), header, more);
  }
}

}  // namespace

Hdf5ObjectHeader read_object_header(Hdf5Storage& storage, std::uint64_t address) {
  constexpr std::uint64_t kTimes = 32, kPhases = 16, kOrder = 4;
  const std::vector<std::byte> front = storage.peek(address, 34, "OHDR");
  Hdf5Fields fields(front, storage.file());
  fields.take(4);
  const std::uint64_t version = fields.number(1), flags = fields.number(1);
  if (version != 2) storage.refuse("an unknown version of an object header");
  if ((flags & kTimes) != 0) fields.take(16);
  if ((flags & kPhases) != 0) fields.take(4);
  const std::uint64_t bytes = fields.number(std::size_t{1} << (flags & 3));
  const std::uint64_t messages_at = front.size() - fields.left();
  if (bytes > storage.file().bytes()) storage.refuse("an object header larger than the file");

  Hdf5ObjectHeader header;
  std::vector<HeaderBlock> more;
  const bool with_order = (flags & kOrder) != 0;
  const std::vector<std::byte> first = storage.block(address, messages_at + bytes + 4);
  parse_messages({std::span(first).subspan(messages_at), storage.file()}, with_order, header, more);
  for (std::size_t i = 0; i < more.size(); ++i) {
    if (i == kMostBlocks) storage.refuse("an object header of too many blocks");
    const HeaderBlock at = more[i];  // a copy: parsing may add to the list
    storage.peek(at.address, 4, "OCHK");
    const std::vector<std::byte> block = storage.block(at.address, at.bytes);
    if (block.size() < 4) storage.refuse("a block of an object header that is too small");
    parse_messages({std::span(block).subspan(4), storage.file()}, with_order, header, more);
  }
  return header;
}

}  // namespace megatron
