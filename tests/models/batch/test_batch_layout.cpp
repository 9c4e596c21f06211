// The table of a batch's fields: bytes, places, shapes and views all follow from it.
#include "models/batch/batch_layout.h"

#include <cstring>
#include <set>

#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

// One field of each shape and source, on both streams.
const std::vector<BatchField> kFields = {
    {.name = "tokens", .view = &Rows::tokens},
    {.name = "document starts", .view = &Rows::document_starts, .shape = FieldShape::samples_by_rows},
    {.name = "sample weights", .view = &Rows::weights, .type = DType::f32, .shape = FieldShape::samples},
    {.name = "positions", .view = &Rows::positions, .shape = FieldShape::rows, .source = FieldSource::row_numbers},
    {.name = "position ids", .view = &Rows::position_ids, .source = FieldSource::row_numbers},
    {.name = "encoder tokens", .view = &Rows::tokens, .stream = Stream::encoder},
};

constexpr BatchSizes kSizes{.rows = {5, 7}, .samples = 3};

/// The fields whose bits are set.
BatchLayout some(unsigned bits) {
  BatchLayout layout{.fields = {}, .sizes = kSizes};
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    if ((bits >> i & 1) != 0) layout.fields.push_back(kFields[i]);
  }
  return layout;
}

}  // namespace

TEST_CASE("batch layout: its bytes are those of its fields, none overlapping") {
  for (unsigned bits = 0; bits < 1U << kFields.size(); ++bits) {
    CAPTURE(bits);
    const BatchLayout layout = some(bits);
    for (const std::int64_t micro_batches : {1, 2, 5}) {
      const BatchBuffer buffer(layout, micro_batches, host_memory());
      REQUIRE(buffer.bytes() == layout.bytes(micro_batches));
      std::vector<int> uses(buffer.bytes());
      for (const BatchField& field : layout.fields) {
        const std::int64_t copies = field.source == FieldSource::sample ? micro_batches : 1;
        for (std::int64_t k = 0; k < copies; ++k) {
          const std::size_t first = layout.offset(field, static_cast<std::size_t>(k));
          REQUIRE(first % 4 == 0);
          for (std::size_t i = 0; i < layout.bytes(field); ++i) ++uses.at(first + i);
        }
      }
      CHECK(uses == std::vector<int>(buffer.bytes(), 1));
    }
  }
  // Each micro-batch has 15 + 15 + 3 + 21 numbers, and all of them together have 5 + 15 more.
  CHECK(some(0b111111).bytes(4) == (4 * 54 + 20) * 4);
}

TEST_CASE("batch layout: views have the sizes asked for, and read what lies there") {
  const BatchLayout layout = some(0b111111);
  const BatchBuffer buffer(layout, 2, host_memory());
  buffer.write_row_numbers([](void* to, const void* values, std::size_t bytes) { std::memcpy(to, values, bytes); });
  for (std::size_t k = 0; k < 2; ++k) {
    for (const BatchField& field : layout.fields) {
      if (field.source == FieldSource::sample) std::memset(buffer.at(field, k), static_cast<int>(k + 1), 4);
    }
  }
  for (const std::int64_t s : {5, 2}) {  // the second as a curriculum has it
    for (std::size_t k = 0; k < 2; ++k) {
      const MicroBatch batch = buffer.view(layout, {.rows = {s, 7}, .samples = 3}, k);
      CHECK(batch.samples == 3);
      CHECK(batch.main.sequence == s);
      CHECK(batch.encoder.sequence == 7);
      CHECK(batch.main.tokens.shape() == Shape{s, 3});
      CHECK(batch.main.document_starts.shape() == Shape{3, s});
      CHECK(batch.main.weights.shape() == Shape{3});
      CHECK(batch.main.weights.dtype() == DType::f32);
      CHECK(batch.encoder.tokens.shape() == Shape{7, 3});
      CHECK(batch.main.targets.empty());
      CHECK(batch.encoder.positions.empty());
      const auto first = static_cast<std::int32_t>(0x01010101 * (k + 1));
      CHECK(batch.main.tokens.as<std::int32_t>()[0] == first);
      CHECK(batch.main.document_starts.as<std::int32_t>()[0] == first);
      CHECK(batch.encoder.tokens.as<std::int32_t>()[0] == first);
      REQUIRE(batch.main.positions.shape() == Shape{s});
      REQUIRE(batch.main.position_ids.shape() == Shape{s, 3});
      for (std::int64_t i = 0; i < s; ++i) {
        CHECK(batch.main.positions.as<std::int32_t>()[i] == i);
        for (std::int64_t j = 0; j < 3; ++j) CHECK(batch.main.position_ids.as<std::int32_t>()[i * 3 + j] == i);
      }
    }
  }
}

TEST_CASE("batch layout: a field left out or of another form is not found") {
  const BatchLayout layout = some(0b100011).without(&Rows::tokens);
  CHECK(layout.find(&Rows::tokens) == nullptr);
  REQUIRE(layout.find(&Rows::tokens, Stream::encoder) != nullptr);
  CHECK(layout.find(&Rows::document_starts)->name == std::string("document starts"));
  require_error(ErrorKind::internal, {"not in the batch's layout"}, [&] { layout.offset(kFields[0], 0); });
  BatchField other = kFields[1];
  other.shape = FieldShape::rows_by_samples;
  require_error(ErrorKind::internal, {"in another form"}, [&] { layout.offset(other, 0); });
}

TEST_CASE("batch layout: a context rank that attends to all rows knows them") {
  BatchLayout whole = some(0b011011);
  whole.sizes = {.rows = {8}, .samples = 3};
  const BatchBuffer all(whole, 1, host_memory());
  const MicroBatch batch = all.view(whole, whole.sizes, 0);
  for (std::int32_t i = 0; i < 24; ++i) {
    static_cast<std::int32_t*>(const_cast<void*>(batch.main.document_starts.data()))[i] = 100 + i;
  }
  const BatchLayout layout = whole.divided({2, 1}, /*whole_rows=*/true);
  CHECK(layout.whole().fields.size() == whole.fields.size());
  CHECK(shape_of(*layout.whole().find(&Rows::document_starts), layout.whole().sizes) == Shape{3, 8});
  const BatchBuffer buffer(layout, 2, host_memory());
  const auto copy = [](void* to, const void* values, std::size_t bytes) { std::memcpy(to, values, bytes); };
  buffer.write_row_numbers(copy);
  cut_batch(batch, buffer, layout.sizes, 1);
  const MicroBatch own = buffer.view(layout, layout.sizes, 1);
  REQUIRE(own.main.tokens.shape() == Shape{4, 3});
  REQUIRE(own.main.document_starts.shape() == Shape{3, 8});
  REQUIRE(own.main.whole_positions.shape() == Shape{8});
  for (std::int32_t i = 0; i < 24; ++i) CHECK(own.main.document_starts.as<std::int32_t>()[i] == 100 + i);
  for (std::int32_t i = 0; i < 8; ++i) CHECK(own.main.whole_positions.as<std::int32_t>()[i] == i);
  for (std::int32_t i = 0; i < 4; ++i) CHECK(own.main.positions.as<std::int32_t>()[i] == 2 + i);
  // Shorter sequences have the same field.
  const BatchSizes shorter = layout.sizes.with_sequence(4);
  buffer.write_row_numbers(shorter, copy);
  CHECK(buffer.view(layout, shorter, 0).main.whole_positions.shape() == Shape{4});
}

TEST_CASE("batch layout: experts know the positions of all rows") {
  BatchLayout whole = some(0b011011);
  whole.sizes = {.rows = {8}, .samples = 3};
  CHECK(whole.with_whole_positions().fields.size() == whole.fields.size());  // the rows here are all
  const BatchLayout layout = whole.divided({2, 1}).with_whole_positions();
  REQUIRE(layout.find(&Rows::whole_positions) != nullptr);
  CHECK(layout.with_whole_positions().fields.size() == layout.fields.size());
  CHECK(row_numbers(*layout.find(&Rows::whole_positions), layout.sizes) ==
        std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(layout.whole().fields.size() == whole.fields.size());
}

TEST_CASE("batch layout: a context rank has two chunks of every sequence") {
  // 8 rows on 2 ranks: chunks of 2; rank 0 has rows 0 1 6 7, rank 1 has 2 3 4 5.
  BatchLayout whole = some(0b011011);
  whole.fields.push_back({.name = "labels", .view = &Rows::labels, .shape = FieldShape::labels});
  whole.fields.push_back({.name = "lengths", .view = &Rows::lengths, .shape = FieldShape::samples});
  whole.sizes = {.rows = {8}, .samples = 3};
  const BatchBuffer all(whole, 1, host_memory());
  const MicroBatch batch = all.view(whole, whole.sizes, 0);
  const auto numbers = [](const ConstTensor& x) { return static_cast<std::int32_t*>(const_cast<void*>(x.data())); };
  for (std::int32_t row = 0; row < 8; ++row) {
    for (std::int32_t j = 0; j < 3; ++j) {
      numbers(batch.main.tokens)[row * 3 + j] = 10 * row + j;
      numbers(batch.main.document_starts)[j * 8 + row] = 100 * j + row;
    }
  }
  for (std::int32_t j = 0; j < 3; ++j) {
    numbers(batch.main.labels)[j] = 7 + j;
    numbers(batch.main.lengths)[j] = 5 + j;
  }
  const std::vector<std::int32_t> rows_of_ranks[] = {{0, 1, 6, 7}, {2, 3, 4, 5}};
  for (int rank = 0; rank < 2; ++rank) {
    CAPTURE(rank);
    const std::vector<std::int32_t>& rows = rows_of_ranks[rank];
    const BatchLayout layout = whole.divided({2, rank});
    CHECK(layout.whole().fields.size() == whole.fields.size());
    CHECK(layout.whole().sizes.rows[0] == 8);
    CHECK(layout.sizes.rows[0] == 4);
    const BatchBuffer buffer(layout, 2, host_memory());
    buffer.write_row_numbers([](void* to, const void* values, std::size_t bytes) { std::memcpy(to, values, bytes); });
    cut_batch(batch, buffer, layout.sizes, 1);
    const MicroBatch own = buffer.view(layout, layout.sizes, 1);
    REQUIRE(own.main.tokens.shape() == Shape{4, 3});
    REQUIRE(own.main.document_starts.shape() == Shape{2, 3, 2});
    REQUIRE(own.main.chunk_starts.shape() == Shape{2, 3});
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int32_t row = rows[static_cast<std::size_t>(i)];
      CHECK(numbers(own.main.positions)[i] == row);
      for (std::int32_t j = 0; j < 3; ++j) {
        CHECK(numbers(own.main.tokens)[i * 3 + j] == 10 * row + j);
        CHECK(numbers(own.main.position_ids)[i * 3 + j] == row);
        CHECK(numbers(own.main.document_starts)[(i / 2 * 3 + j) * 2 + i % 2] == 100 * j + row);
        CHECK(numbers(own.main.chunk_starts)[i / 2 * 3 + j] == rows[static_cast<std::size_t>(i / 2 * 2)]);
      }
    }
    for (std::int32_t j = 0; j < 3; ++j) {
      CHECK(numbers(own.main.labels)[j] == (rank == 0 ? 7 + j : -1));  // the class is told from the first row
      CHECK(numbers(own.main.lengths)[j] == 5 + j);
    }
    // Half as long, as a curriculum has it: chunks of one row, whose numbers are other ones.
    const BatchSizes shorter = layout.sizes.with_sequence(4);
    CHECK(row_numbers(*layout.find(&Rows::positions), shorter) ==
          (rank == 0 ? std::vector<std::int32_t>{0, 3} : std::vector<std::int32_t>{1, 2}));
  }
  CHECK(whole.divided({1, 0}).fields.size() == whole.fields.size());
  CHECK_THROWS_AS(whole.divided({3, 0}), Error);  // 8 rows are no 6 chunks
}
