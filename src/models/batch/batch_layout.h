// BatchLayout: the table of what a micro-batch is made of. Host memory, uploads, sizes and views all follow from it, so
// that a new field is a member of Rows, a row in the family's table (src/models/families), and the code that makes and
// reads it. BatchBuffer: the memory of a layout for some micro-batches. Neither knows samples or models.
#pragma once

#include <array>
#include <vector>

#include "backend/tensor/memory.h"
#include "base/core/zig_zag.h"
#include "models/batch/micro_batch.h"

namespace megatron {

/// [s], [s, b], [b, s] (of a context rank [2, b, s/2]), [b]; [b / columns of a sample], where several columns make one;
/// [2, b]; and [s] and [b, s] of the whole sequences.
enum class FieldShape {
  rows,
  rows_by_samples,
  samples_by_rows,
  samples,
  labels,
  chunks_by_samples,
  whole_rows,
  samples_by_whole_rows
};
enum class FieldReader { embedding, attention, head };  ///< the layers that a stage needs it for
enum class FieldSource {
  sample,       ///< each sample makes its column
  row_numbers,  ///< the place of each row in the sequence: i32, one for all micro-batches and on every stage
};

/// One tensor of a micro-batch. Fields are the same if they have the same stream and view.
struct BatchField {
  const char* name = "";
  ConstTensor Rows::*view = nullptr;
  FieldReader reader = FieldReader::attention;
  Stream stream = Stream::main;
  DType type = DType::i32;  ///< one of four bytes
  FieldShape shape = FieldShape::rows_by_samples;
  FieldSource source = FieldSource::sample;

  bool same(const BatchField& other) const { return view == other.view && stream == other.stream; }
};

struct BatchSizes {
  std::array<std::int64_t, 2> rows{};  ///< s by stream
  std::int64_t samples = 0;            ///< b, columns
  std::int64_t columns = 1;            ///< that make one sample: the choices of a question
  ZigZag cut = {};                     ///< the sequences': rows are one rank's

  /// Samples as data makes them, one at a time: `columns` columns each.
  std::int64_t whole_samples() const { return samples / columns; }
  std::int64_t rows_of(Stream stream) const { return rows[static_cast<std::size_t>(stream)]; }
  /// Sizes of the whole sequences.
  BatchSizes whole() const;
  /// The same with main streams of this many rows, counted before the cut; 0: the same.
  BatchSizes with_sequence(std::int64_t sequence) const;
};

Shape shape_of(const BatchField& field, const BatchSizes& sizes);
/// The contents of a field of row numbers.
std::vector<std::int32_t> row_numbers(const BatchField& field, const BatchSizes& sizes);

struct BatchLayout {
  std::vector<BatchField> fields;
  BatchSizes sizes;  ///< with the longest sequences

  std::size_t bytes(const BatchField& field) const;
  /// Bytes of this number of micro-batches.
  std::size_t bytes(std::int64_t micro_batches) const;
  /// Where micro-batch k's field lies in the memory of a batch, in bytes. Error(internal) if it is not in the layout.
  std::size_t offset(const BatchField& field, std::size_t k) const;
  /// Null if the layout lacks it.
  const BatchField* find(ConstTensor Rows::*view, Stream stream = Stream::main) const;
  /// Streams that have rows.
  std::vector<Stream> streams() const;
  /// The layout without a field, if it has it.
  BatchLayout without(ConstTensor Rows::*view, Stream stream = Stream::main) const;
  /// One rank's rows of these whole sequences, and where its chunks start. A cut that cuts nothing changes nothing.
  /// `whole_rows`: attention has all rows, and is told of their positions and documents.
  BatchLayout divided(const ZigZag& cut, bool whole_rows = false) const;
  /// A rank's layout with the positions of all rows, for experts that take them in any order.
  BatchLayout with_whole_positions() const;
  /// Back again.
  BatchLayout whole() const;
};

/// A micro-batch of these sizes, no larger than the layout's, in which each field is a contiguous view of what
/// memory_of(field), a pointer, gives; null: empty.
template <class MemoryOf>
MicroBatch view_batch(const BatchLayout& layout, const BatchSizes& sizes, const MemoryOf& memory_of) {
  MicroBatch batch;
  batch.samples = sizes.samples;
  for (const Stream stream : {Stream::main, Stream::encoder}) batch.rows(stream).sequence = sizes.rows_of(stream);
  for (const BatchField& field : layout.fields) {
    const void* const memory = memory_of(field);
    if (memory == nullptr) continue;
    batch.rows(field.stream).*field.view = ConstTensor(memory, shape_of(field, sizes), field.type);
  }
  return batch;
}

class BatchBuffer {
 public:
  BatchBuffer() = default;
  BatchBuffer(BatchLayout layout, std::int64_t micro_batches, Allocator& memory);

  const BatchLayout& layout() const { return layout_; }
  std::size_t bytes() const { return memory_.bytes(); }
  void* at(const BatchField& field, std::size_t k) const { return memory_.data() + layout_.offset(field, k); }
  /// The fields of `used`, which are among the layout's.
  MicroBatch view(const BatchLayout& used, const BatchSizes& sizes, std::size_t k) const {
    return view_batch(used, sizes, [&](const BatchField& field) { return at(field, k); });
  }
  /// copy(to, values, bytes) for each field of row numbers: nothing else is written here. What is written for the
  /// longest sequences holds for shorter ones, unless they are cut.
  template <class Copy>
  void write_row_numbers(const Copy& copy) const {
    write_row_numbers(layout_.sizes, copy);
  }
  template <class Copy>
  void write_row_numbers(const BatchSizes& sizes, const Copy& copy) const {
    for (const BatchField& field : layout_.fields) {
      if (field.source != FieldSource::row_numbers) continue;
      const std::vector<std::int32_t> values = row_numbers(field, sizes);
      copy(at(field, 0), values.data(), values.size() * sizeof(std::int32_t));
    }
  }

 private:
  BatchLayout layout_;
  Buffer memory_;
};

/// Copies one rank's part of each field that samples make, from a micro-batch of whole sequences in host memory to
/// micro-batch k of `to`, which is used with `sizes`. A label belongs to its sample's first row: the other ranks get
/// -1, none.
void cut_batch(const MicroBatch& whole, const BatchBuffer& to, const BatchSizes& sizes, std::size_t k);

}  // namespace megatron
