#include "models/batch/batch_layout.h"

#include <algorithm>
#include <utility>

namespace megatron {

Shape shape_of(const BatchField& field, const BatchSizes& sizes) {
  const std::int64_t s = sizes.rows_of(field.stream), b = sizes.samples;
  switch (field.shape) {
    case FieldShape::rows: return {s};
    case FieldShape::rows_by_samples: return {s, b};
    case FieldShape::samples_by_rows: return {b, s};
    case FieldShape::samples: return {b};
    case FieldShape::labels: return {sizes.whole_samples()};
  }
  fail(ErrorKind::internal, "a field of no shape");
}

// The memory of a longer sequence begins with that of a shorter one, so that row numbers are written once.
std::vector<std::int32_t> row_numbers(const BatchField& field, const BatchSizes& sizes) {
  internal_check(
      field.type == DType::i32 && (field.shape == FieldShape::rows || field.shape == FieldShape::rows_by_samples),
      "row numbers of another shape or type");
  const std::int64_t columns = field.shape == FieldShape::rows ? 1 : sizes.samples;
  std::vector<std::int32_t> numbers;
  for (std::int64_t row = 0; row < sizes.rows_of(field.stream); ++row) {
    numbers.insert(numbers.end(), static_cast<std::size_t>(columns), static_cast<std::int32_t>(row));
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

BatchBuffer::BatchBuffer(BatchLayout layout, std::int64_t micro_batches, Allocator& memory)
    : layout_(std::move(layout)), memory_(memory, layout_.bytes(micro_batches)) {}

}  // namespace megatron
