// Samples of labelled examples, field by field: frames, types, truncation, order and padding, against what is written
// out here by hand.
#include <set>

#include "data/samples/batches.h"
#include "data/samples/labelled_samples.h"
#include "support/byte_words.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr std::int32_t kCls = ByteWords::kCls, kSep = ByteWords::kSep, kPad = ByteWords::kPad;

std::shared_ptr<EncodedExamples> encoded(std::int64_t columns, const std::vector<LabelledExample>& examples) {
  const ByteWords tokenizer(true);
  auto result = std::make_shared<EncodedExamples>(tokenizer, columns, 8);
  const auto encoder = tokenizer.make_encoder();
  for (const LabelledExample& example : examples) result->add(*encoder, example);
  result->shrink();
  return result;
}

BatchLayout labelled_layout(std::int64_t samples, std::int64_t columns) {
  return {.fields = {{.name = "tokens", .view = &Rows::tokens},
                     {.name = "types", .view = &Rows::types},
                     {.name = "lengths", .view = &Rows::lengths, .shape = FieldShape::samples},
                     {.name = "labels", .view = &Rows::labels, .shape = FieldShape::labels}},
          .sizes = {.rows = {8}, .samples = samples * columns, .columns = columns}};
}

std::vector<std::int32_t> ids_in(const ConstTensor& tensor) {
  const auto* const first = static_cast<const std::int32_t*>(tensor.data());
  return {first, first + tensor.elements()};
}

using Ids = std::vector<std::int32_t>;

/// Column `column` of [s, b].
Ids column(const ConstTensor& tensor, std::int64_t column) {
  Ids ids;
  const Ids all = ids_in(tensor);
  for (auto i = static_cast<std::size_t>(column); i < all.size(); i += static_cast<std::size_t>(tensor.dim(1))) {
    ids.push_back(all[i]);
  }
  return ids;
}

}  // namespace

TEST_CASE("labelled samples: a text and a pair and a pair cut at its longer text") {
  const auto examples =
      encoded(1, {{{{"ab", {}}}, 1}, {{{"ab", "c"}}, 0}, {{{"abcdef", "xyzuvw"}}, 2}, {{{"", ""}}, 1}});
  CHECK(examples->truncated() == 1);
  LabelledSamples samples(examples, LabelledSamples::Order::sequential, 7);
  CHECK(samples.samples() == 4);
  BatchReader reader(
      samples, labelled_layout(4, 1), {.most_samples = 4},
      [](std::int64_t step) { return GlobalBatch{.samples = step == 0 ? 4 : 0}; }, 0);
  const StepBatch& batch = reader.next();
  CHECK(batch.loss_counts == std::vector<double>{4});
  const Rows& rows = batch.micro_batches.at(0).main;
  CHECK(column(rows.tokens, 0) == Ids{kCls, 'a', 'b', kSep, kPad, kPad, kPad, kPad});
  CHECK(column(rows.types, 0) == Ids(8, 0));
  CHECK(column(rows.tokens, 1) == Ids{kCls, 'a', 'b', kSep, 'c', kSep, kPad, kPad});
  CHECK(column(rows.types, 1) == Ids{0, 0, 0, 0, 1, 1, 0, 0});
  // Five tokens are left of twelve: of two texts as long as each other the second is cut first.
  CHECK(column(rows.tokens, 2) == Ids{kCls, 'a', 'b', 'c', kSep, 'x', 'y', kSep});
  CHECK(column(rows.types, 2) == Ids{0, 0, 0, 0, 0, 1, 1, 1});
  CHECK(column(rows.tokens, 3) == Ids{kCls, kSep, kSep, kPad, kPad, kPad, kPad, kPad});
  CHECK(ids_in(rows.lengths) == Ids{4, 6, 8, 3});
  CHECK(ids_in(rows.labels) == Ids{1, 0, 2, 1});
}

TEST_CASE("labelled samples: a question's choices are columns with one label") {
  const auto examples = encoded(2, {{{{"q", "a"}, {"q", "bb"}}, 1}, {{{"r", "c"}, {"r", ""}}, 0}});
  LabelledSamples samples(examples, LabelledSamples::Order::sequential, 7);
  // Two data ranks, micro-batches of one question: the second rank's is the second question; a third only fills.
  BatchReader reader(
      samples, labelled_layout(1, 2), {.most_samples = 4, .data_rank = 1, .data_size = 2},
      [](std::int64_t step) { return GlobalBatch{.samples = step == 0 ? 4 : 0, .padding = 1}; }, 0);
  const StepBatch& batch = reader.next();
  REQUIRE(batch.micro_batches.size() == 2);
  CHECK(batch.loss_counts == std::vector<double>{1});
  const MicroBatch &second = batch.micro_batches[0], &fourth = batch.micro_batches[1];
  CHECK(second.samples == 2);
  CHECK(second.first_sample == 2);
  CHECK(fourth.first_sample == 6);
  CHECK(column(second.main.tokens, 0) == Ids{kCls, 'r', kSep, 'c', kSep, kPad, kPad, kPad});
  CHECK(column(second.main.tokens, 1) == Ids{kCls, 'r', kSep, kSep, kPad, kPad, kPad, kPad});
  CHECK(ids_in(second.main.lengths) == Ids{5, 4});
  CHECK(ids_in(second.main.labels) == Ids{0});
  CHECK(ids_in(fourth.main.labels) == Ids{-1});
}

TEST_CASE("labelled samples: what is held in memory is counted") {
  const auto examples = encoded(2, {{{{"q", "a"}, {"q", "bb"}}, 1}, {{{"r", "c"}, {"r", ""}}, 0}});
  CHECK(examples->bytes() == (5 + 6 + 5 + 4) * 4 + 4 * 12 + 2 * 4);
}

TEST_CASE("labelled samples: a pass has all examples once by seed and pass alone") {
  std::vector<LabelledExample> many(37, {{{"a", {}}}, 0});
  const auto examples = encoded(1, many);
  const LabelledSamples samples(examples, LabelledSamples::Order::shuffled, 7);
  const LabelledSamples other(examples, LabelledSamples::Order::shuffled, 8);
  std::vector<std::vector<std::uint64_t>> passes(3);
  for (std::uint64_t pass = 0; pass < 3; ++pass) {
    for (std::uint64_t i = 0; i < 37; ++i) passes[pass].push_back(samples.example_of(37 * pass + i));
    CHECK(std::set<std::uint64_t>(passes[pass].begin(), passes[pass].end()).size() == 37);
  }
  CHECK(passes[0] != passes[1]);
  CHECK(passes[1] != passes[2]);
  CHECK(other.example_of(0) + other.example_of(1) * 100 != samples.example_of(0) + samples.example_of(1) * 100);
  CHECK(LabelledSamples(examples, LabelledSamples::Order::sequential, 7).example_of(40) == 3);
}

TEST_CASE("labelled samples: a vocabulary without [CLS] is refused by name") {
  const ByteWords plain(false);
  require_error(ErrorKind::data, {"\"bytes\" lacks one of the tokens [CLS], [SEP] and [PAD]"},
                [&] { EncodedExamples(plain, 1, 8); });
}
