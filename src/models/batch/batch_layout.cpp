#include "models/batch/batch_layout.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace megatron {

Shape shape_of(const BatchField& field, const BatchSizes& sizes) {
  const std::int64_t s = sizes.rows_of(field.stream), b = sizes.samples;
  switch (field.shape) {
    case FieldShape::rows: return {s};
    case FieldShape::rows_by_samples: return {s, b};
    case FieldShape::samples_by_rows: return sizes.cut.cuts() ? Shape{2, b, s / 2} : Shape{b, s};
    case FieldShape::samples: return {b};
    case FieldShape::labels: return {sizes.whole_samples()};
    case FieldShape::chunks_by_samples: return {2, b};
    case FieldShape::whole_rows: return {s * sizes.cut.ranks};
    case FieldShape::samples_by_whole_rows: return {b, s * sizes.cut.ranks};
  }
  fail(ErrorKind::internal, "a field of no shape");
}

BatchSizes BatchSizes::whole() const {
  BatchSizes whole = *this;
  for (std::int64_t& each : whole.rows) each *= cut.ranks;
  whole.cut = {};
  return whole;
}

BatchSizes BatchSizes::with_sequence(std::int64_t sequence) const {
  BatchSizes sizes = *this;
  if (sequence > 0) sizes.rows[0] = exact_division(sequence, cut.ranks, "rows of a sequence over context ranks");
  return sizes;
}

// The memory of a longer sequence begins with that of a shorter one, so that row numbers of whole ones are written
// once.
std::vector<std::int32_t> row_numbers(const BatchField& field, const BatchSizes& sizes) {
  if (field.shape == FieldShape::whole_rows) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(shape_of(field, sizes).elements()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  const bool by_chunks = field.shape == FieldShape::chunks_by_samples;
  internal_check(field.type == DType::i32 &&
                     (field.shape == FieldShape::rows || field.shape == FieldShape::rows_by_samples || by_chunks),
                 "row numbers of another shape or type");
  const std::int64_t columns = field.shape == FieldShape::rows ? 1 : sizes.samples;
  const std::int64_t rows = sizes.rows_of(field.stream), each = by_chunks ? rows / 2 : 1;
  std::vector<std::int32_t> numbers;
  for (std::int64_t row = 0; row < rows; row += each) {
    const auto number = static_cast<std::int32_t>(sizes.cut.position(row, rows));
    numbers.insert(numbers.end(), static_cast<std::size_t>(columns), number);
  }
  return numbers;
}

std::size_t BatchLayout::bytes(const BatchField& field) const {
  internal_check(size_of(field.type) == 4, "a field whose numbers would not be aligned", field.type);
  return static_cast<std::size_t>(shape_of(field, sizes).elements()) * size_of(field.type);
}

std::size_t BatchLayout::bytes(std::int64_t micro_batches) const {
  std::size_t bytes_in_all = 0;
  for (const BatchField& field : fields) {
    const auto copies = field.source == FieldSource::sample ? static_cast<std::size_t>(micro_batches) : 1;
    bytes_in_all += copies * bytes(field);
  }
  return bytes_in_all;
}

// Row numbers, then all fields of one micro-batch after the other's.
std::size_t BatchLayout::offset(const BatchField& field, std::size_t k) const {
  std::size_t numbers = 0, own = 0, per_micro_batch = 0;
  bool found = false;
  for (const BatchField& each : fields) {
    std::size_t& before = each.source == FieldSource::sample ? per_micro_batch : numbers;
    if (each.same(field)) {
      own = before;
      found = true;
      internal_check(each.source == field.source && each.shape == field.shape && each.type == field.type,
                     "a field that the layout has in another form");
    }
    before += bytes(each);
  }
  internal_check(found, "a field that is not in the batch's layout");
  return field.source == FieldSource::sample ? numbers + k * per_micro_batch + own : own;
}

const BatchField* BatchLayout::find(ConstTensor Rows::*view, Stream stream) const {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const BatchField& field) {
    return field.view == view && field.stream == stream;
  });
  return found == fields.end() ? nullptr : &*found;
}

BatchLayout BatchLayout::without(ConstTensor Rows::*view, Stream stream) const {
  BatchLayout rest = *this;
  std::erase_if(rest.fields, [&](const BatchField& field) { return field.view == view && field.stream == stream; });
  return rest;
}

std::vector<Stream> BatchLayout::streams() const {
  std::vector<Stream> found;
  for (const Stream stream : {Stream::main, Stream::encoder}) {
    if (sizes.rows_of(stream) > 0) found.push_back(stream);
  }
  return found;
}

BatchLayout BatchLayout::divided(const ZigZag& cut, bool whole_rows) const {
  internal_check(!sizes.cut.cuts(), "a layout that is cut twice");
  if (!cut.cuts()) return *this;
  BatchLayout divided = *this;
  divided.sizes.cut = cut;
  for (std::int64_t& rows : divided.sizes.rows) {
    rows = 2 * exact_division(rows, cut.chunks(), "rows of a sequence in chunks");
  }
  for (const Stream stream : streams()) {
    divided.fields.push_back({.name = stream == Stream::main ? "chunk starts" : "encoder chunk starts",
                              .view = &Rows::chunk_starts,
                              .stream = stream,
                              .shape = FieldShape::chunks_by_samples,
                              .source = FieldSource::row_numbers});
  }
  if (!whole_rows) return divided;
  divided = divided.with_whole_positions();
  for (BatchField& field : divided.fields) {
    if (field.shape == FieldShape::samples_by_rows) field.shape = FieldShape::samples_by_whole_rows;
  }
  return divided;
}

BatchLayout BatchLayout::with_whole_positions() const {
  BatchLayout layout = *this;
  if (!sizes.cut.cuts() || find(&Rows::whole_positions) != nullptr) return layout;
  for (const Stream stream : streams()) {
    layout.fields.push_back({.name = stream == Stream::main ? "positions of all rows" : "positions of all encoder rows",
                             .view = &Rows::whole_positions,
                             .stream = stream,
                             .shape = FieldShape::whole_rows,
                             .source = FieldSource::row_numbers});
  }
  return layout;
}

BatchLayout BatchLayout::whole() const {
  BatchLayout whole = *this;
  for (const Stream stream : streams()) {
    whole = whole.without(&Rows::chunk_starts, stream).without(&Rows::whole_positions, stream);
  }
  whole.sizes = sizes.whole();
  for (BatchField& field : whole.fields) {
    if (field.shape == FieldShape::samples_by_whole_rows) field.shape = FieldShape::samples_by_rows;
  }
  return whole;
}

BatchBuffer::BatchBuffer(BatchLayout layout, std::int64_t micro_batches, Allocator& memory)
    : layout_(std::move(layout)), memory_(memory, layout_.bytes(micro_batches)) {}

namespace {

/// Rows of chunks, each `bytes` a row, of one matrix of rows.
void cut_rows(const std::byte* from, std::byte* to, std::int64_t rows, std::size_t bytes, const ZigZag& cut) {
  const auto each = static_cast<std::size_t>(rows / 2) * bytes;
  for (std::int64_t i = 0; i < 2; ++i) {
    std::memcpy(to + static_cast<std::size_t>(i) * each, from + static_cast<std::size_t>(cut.chunk(i)) * each, each);
  }
}

}  // namespace

void cut_batch(const MicroBatch& whole, const BatchBuffer& to, const BatchSizes& sizes, std::size_t k) {
  constexpr std::size_t kNumber = 4;
  const auto b = static_cast<std::size_t>(sizes.samples);
  for (const BatchField& field : to.layout().fields) {
    if (field.source != FieldSource::sample) continue;
    const ConstTensor tensor = whole.rows(field.stream).*field.view;
    const auto* const from = static_cast<const std::byte*>(tensor.data());
    auto* const place = static_cast<std::byte*>(to.at(field, k));
    const std::int64_t rows = sizes.rows_of(field.stream);
    internal_check(tensor.shape() == shape_of(field, sizes.whole()), "a field of other whole sequences", field.name,
                   tensor.shape(), shape_of(field, sizes.whole()));
    switch (field.shape) {
      case FieldShape::rows: cut_rows(from, place, rows, kNumber, sizes.cut); break;
      case FieldShape::rows_by_samples: cut_rows(from, place, rows, kNumber * b, sizes.cut); break;
      case FieldShape::samples_by_rows: {
        const std::size_t each = kNumber * static_cast<std::size_t>(rows / 2);
        for (std::size_t i = 0; i < 2; ++i) {
          const std::byte* const chunk = from + static_cast<std::size_t>(sizes.cut.chunk(static_cast<int>(i))) * each;
          const auto sequence = static_cast<std::size_t>(sizes.cut.chunks()) * each;
          for (std::size_t j = 0; j < b; ++j) std::memcpy(place + (i * b + j) * each, chunk + j * sequence, each);
        }
        break;
      }
      case FieldShape::samples:
      case FieldShape::samples_by_whole_rows: std::memcpy(place, from, tensor.bytes()); break;
      case FieldShape::labels:
        if (sizes.cut.rank == 0) {
          std::memcpy(place, from, tensor.bytes());
        } else {
          std::fill_n(reinterpret_cast<std::int32_t*>(place), tensor.elements(), -1);
        }
        break;
      case FieldShape::chunks_by_samples:
      case FieldShape::whole_rows: fail(ErrorKind::internal, "samples make no chunks and number no rows");
    }
  }
}

}  // namespace megatron
