// Samples: what the micro-batches of a run or an evaluation are made of, one column of every field per sample. A sample
// is a pure function of its number, whatever rank, step or micro-batch asks for it. Knows fields, not models.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/batch/batch_layout.h"

namespace megatron {

/// One sample's numbers of a field; element i is row i, or the only one.
template <class T>
class Column {
 public:
  Column() = default;
  Column(T* first, std::int64_t stride, std::int64_t size) : first_(first), stride_(stride), size_(size) {}
  explicit operator bool() const { return first_ != nullptr; }
  std::int64_t size() const { return size_; }
  T& operator[](std::int64_t i) const { return first_[i * stride_]; }

 private:
  T* first_ = nullptr;
  std::int64_t stride_ = 1, size_ = 0;
};

/// The place of one sample in a micro-batch in host memory, of which it fills one column.
class SampleColumn {
 public:
  /// Column `column` of micro-batch k, used with `sizes`. The buffer must outlive it.
  SampleColumn(const BatchBuffer& buffer, const BatchSizes& sizes, std::size_t k, std::int64_t column)
      : buffer_(buffer), sizes_(sizes), k_(k), column_(column) {}

  std::int64_t rows(Stream stream = Stream::main) const { return sizes_.rows_of(stream); }
  /// The columns of the sample, if there are several: this place is the first one's.
  std::int64_t columns() const { return sizes_.columns; }
  SampleColumn next(std::int64_t i) const { return {buffer_, sizes_, k_, column_ + i}; }
  /// Empty if the batch lacks the field or has row numbers in it. A wrong T is an internal error.
  template <class T>
  Column<T> of(ConstTensor Rows::*view, Stream stream = Stream::main) const {
    const BatchField* const field = buffer_.layout().find(view, stream);
    if (field == nullptr || field->source != FieldSource::sample) return {};
    internal_check(DTypeOf<T>::value == field->type, "a field made as another type than it has", DTypeOf<T>::value,
                   field->type);
    T* const memory = static_cast<T*>(buffer_.at(*field, k_));
    switch (field->shape) {
      case FieldShape::rows_by_samples: return {memory + column_, sizes_.samples, rows(stream)};
      case FieldShape::samples_by_rows: return {memory + column_ * rows(stream), 1, rows(stream)};
      case FieldShape::samples: return {memory + column_, 1, 1};
      case FieldShape::labels: return {memory + column_ / sizes_.columns, 1, 1};
      case FieldShape::rows:
      case FieldShape::chunks_by_samples:
      case FieldShape::whole_rows:
      case FieldShape::samples_by_whole_rows: break;
    }
    fail(ErrorKind::internal, "a sample has no column in a field without samples");
  }

 private:
  const BatchBuffer& buffer_;
  const BatchSizes& sizes_;
  std::size_t k_;
  std::int64_t column_;
};

/// Sets a whole column, which may be shorter than what the sample has, or absent.
template <class T>
void place(const std::vector<T>& values, const Column<T>& to) {
  internal_check(static_cast<std::size_t>(to.size()) <= values.size(), "a batch of longer sequences than its samples",
                 to.size(), values.size());
  for (std::int64_t i = 0; i < to.size(); ++i) to[i] = values[static_cast<std::size_t>(i)];
}

/// Token ids of a sample under a name, for a reader.
struct NamedTokens {
  std::string name;
  std::vector<std::int32_t> ids;
};

/// Thread-safe.
class Samples {
 public:
  virtual ~Samples() = default;
  Samples() = default;
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;

  virtual std::uint64_t samples() const = 0;  ///< in one pass
  virtual std::string description() const = 0;
  /// Terms of the loss.
  virtual std::size_t terms() const { return 1; }
  /// Sets the sample's column in every field that `to` has, and adds to counts [terms] what the sums of its losses are
  /// divided by.
  virtual void make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) = 0;
  /// Amount that each sample adds to the count of the only term, if it is the same for all because each target counts
  /// once: then batches need no weights, and counts no reading.
  virtual std::optional<double> count_per_sample(const BatchSizes& sizes) const = 0;
  /// The whole sample as a person reads it, its text first.
  virtual std::vector<NamedTokens> show(std::uint64_t sample) = 0;
};

/// The part of a layout that batches of these samples use: without weights if every loss counts once. `padded`: some
/// sample only fills a batch.
BatchLayout used_layout(const BatchLayout& layout, const Samples& samples, bool padded = false);

/// Samples in order, one JSON object a line: {"sample":0,"tokens":[...],"text":"..."} with their tokens, and what
/// `decode` makes of the first of them; without it no text. Bytes that are not UTF-8 are replaced.
using DecodeTokens = std::function<std::string(std::span<const std::int32_t> tokens)>;
void print_samples(Samples& samples, std::uint64_t first, std::uint64_t count, const DecodeTokens& decode,
                   std::ostream& out);

}  // namespace megatron
