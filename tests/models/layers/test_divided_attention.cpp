// Attention over sequences that context ranks divide, against one rank's: bit by bit where sums have one order. The
// bytes that travel are those of the formula.
#include "models/layers/divided_attention.h"

#include <cmath>
#include <mutex>

#include "backend/ops/backends.h"
#include "backend/ops/counting_ops.h"
#include "distributed/comm/thread_communicator.h"
#include "models/batch/batch_layout.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

namespace {

// Chunks of 128 and 64 rows on 2 and 4 ranks: whole blocks of queries, and more of them than a path for few takes.
constexpr std::int64_t kRows = 512, kSamples = 2, kHeads = 4, kKeyHeads = 2, kSize = 16;

struct Problem {
  const char* name;
  bool causal = true;
  std::int64_t window = 0;
  bool documents = false, alibi = false, lengths = false;
  float dropout = 0, softcap = 0;
};

/// Everything of whole sequences.
template <class T>
struct Values {
  Owned<T> q, k, v, out, dout, dq, dk, dv;
  Owned<float> log_sum_exp;

  explicit Values(std::int64_t rows)
      : q({rows, kSamples, kHeads, kSize}),
        k({rows, kSamples, kKeyHeads, kSize}),
        v(k),
        out(q),
        dout(q),
        dq(q),
        dk(k),
        dv(k),
        log_sum_exp({kSamples, kHeads, rows}) {}
};

template <class T>
Values<T> inputs() {
  Values<T> whole(kRows);
  whole.q = random_tensor<T>(whole.q.shape(), 1);
  whole.k = random_tensor<T>(whole.k.shape(), 2);
  whole.v = random_tensor<T>(whole.v.shape(), 3);
  whole.dout = random_tensor<T>(whole.dout.shape(), 4);
  return whole;
}

/// Copies this rank's rows of a whole tensor, or puts them back.
template <class T>
void move_rows(Owned<T>& whole, Owned<T>& own, const ZigZag& cut, bool back) {
  const std::int64_t rows = own.shape()[0], each = own.elements() / rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < each; ++i) {
      T& there = whole[cut.position(row, rows) * each + i];
      T& here = own[row * each + i];
      (back ? there : here) = back ? here : there;
    }
  }
}

// Documents of 48 rows; the second sample ends with row 400.
std::int32_t start_of(std::int64_t row) {
  return static_cast<std::int32_t>(row / 48 * 48);
}

/// Fields of a rank's rows that attention reads.
struct Fields {
  BatchBuffer buffer;
  MicroBatch batch;

  explicit Fields(const ZigZag& cut) {
    BatchLayout layout{
        .fields = {{.name = "positions",
                    .view = &Rows::positions,
                    .shape = FieldShape::rows,
                    .source = FieldSource::row_numbers},
                   {.name = "starts", .view = &Rows::document_starts, .shape = FieldShape::samples_by_rows},
                   {.name = "lengths", .view = &Rows::lengths, .shape = FieldShape::samples}},
        .sizes = {.rows = {kRows}, .samples = kSamples}};
    layout = layout.divided(cut);
    buffer = BatchBuffer(layout, 1, host_memory());
    buffer.write_row_numbers([](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); });
    batch = buffer.view(layout, layout.sizes, 0);
    auto* const starts = static_cast<std::int32_t*>(buffer.at(layout.fields[1], 0));
    const std::int64_t rows = layout.sizes.rows[0], each = cut.cuts() ? rows / 2 : rows;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t j = 0; j < kSamples; ++j) {
        starts[(row / each * kSamples + j) * each + row % each] = start_of(cut.position(row, rows));
      }
    }
    auto* const lengths = static_cast<std::int32_t*>(buffer.at(layout.fields[2], 0));
    lengths[0] = kRows;
    lengths[1] = 400;
  }
};

/// Sets results in `whole`; bytes that this rank sends to others.
template <class T>
std::int64_t run(const Problem& problem, Communicator& world, Values<T>& whole) {
  const ProcessGrid grid(world, {.context = world.size()});
  TrafficMeter meter;
  grid.context().set_meter(&meter);
  Backend backend = make_cpu_backend();
  const TensorRegion region(grid, false);
  const ContextRegion context_region(grid);
  const ZigZag& cut = context_region.cut();
  const Fields fields(cut);
  const Buffer memory(*backend.device, std::size_t{1} << 23);
  Arena scratch("scratch", memory);
  const PassSettings pass;
  Context context{.ops = *backend.ops,
                  .region = region,
                  .saved = &scratch,
                  .scratch = scratch,
                  .micro_batch = fields.batch,
                  .pass = pass,
                  .context_region = &context_region};
  Values<T> own(kRows / cut.ranks);
  move_rows(whole.q, own.q, cut, false);
  move_rows(whole.k, own.k, cut, false);
  move_rows(whole.v, own.v, cut, false);
  move_rows(whole.dout, own.dout, cut, false);
  const Owned<float> slopes({kHeads}, std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f});
  AttentionMask mask;
  mask.causal = problem.causal;
  mask.window = problem.window;
  mask.softcap = problem.softcap;
  if (problem.documents) mask.document_starts = fields.batch.main.document_starts;
  if (problem.lengths) mask.key_lengths = fields.batch.main.lengths;
  if (problem.alibi) mask.slopes = slopes;
  const Dropout dropout{.probability = problem.dropout, .key = 7, .positions = fields.batch.main.positions};
  attend(context, {.q = own.q,
                   .k = own.k,
                   .v = own.v,
                   .out = own.out,
                   .log_sum_exp = own.log_sum_exp,
                   .scale = 0.25f,
                   .mask = mask,
                   .dropout = dropout});
  attend_back(context, {.dout = own.dout,
                        .q = own.q,
                        .k = own.k,
                        .v = own.v,
                        .out = own.out,
                        .log_sum_exp = own.log_sum_exp,
                        .dq = own.dq,
                        .dk = own.dk,
                        .dv = own.dv,
                        .scale = 0.25f,
                        .mask = mask,
                        .dropout = dropout});
  internal_check(scratch.used() == 0, "scratch that was not given back");
  grid.context().set_meter(nullptr);
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  move_rows(whole.out, own.out, cut, true);
  move_rows(whole.dq, own.dq, cut, true);
  move_rows(whole.dk, own.dk, cut, true);
  move_rows(whole.dv, own.dv, cut, true);
  return meter.bytes_sent;
}

template <class T>
double difference(const Owned<T>& a, const Owned<T>& b) {
  double sum = 0, norm = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    sum += (a.value(i) - b.value(i)) * (a.value(i) - b.value(i));
    norm += b.value(i) * b.value(i);
  }
  return std::sqrt(sum / norm);
}

constexpr Problem kProblems[] = {
    {.name = "causal"},
    {.name = "all", .causal = false},
    {.name = "all, lengths", .causal = false, .lengths = true},
    {.name = "window", .window = 40},
    {.name = "documents", .documents = true},
    {.name = "documents, ALiBi, dropout", .documents = true, .alibi = true, .dropout = 0.1f},
    {.name = "ALiBi, cap", .alibi = true, .softcap = 2},
    {.name = "window, dropout", .window = 100, .dropout = 0.2f},
    {.name = "all, dropout", .causal = false, .dropout = 0.1f},
};

}  // namespace

TEMPLATE_TEST_CASE("divided attention: forward and dq have one rank's bits", "[divided]", float, BFloat16) {
  for (const Problem& problem : kProblems) {
    Values<TestType> one = inputs<TestType>();
    run_as_threads(1, [&](Communicator& world) { CHECK(run(problem, world, one) == 0); });
    for (const int ranks : {2, 4}) {
      CAPTURE(problem.name, ranks);
      Values<TestType> divided = inputs<TestType>();
      std::int64_t bytes = 0;
      run_as_threads(ranks, [&](Communicator& world) {
        const std::int64_t own = run(problem, world, divided);
        if (world.rank() == 0) bytes = own;
      });
      CHECK(divided.out == one.out);
      CHECK(divided.dq == one.dq);
      // Two sums of a rank, then those of all ranks; in 16 bits rounded in between.
      const double bound = DTypeOf<TestType>::value == DType::f32 ? 1e-6 : 5e-3;
      CHECK(difference(divided.dk, one.dk) < bound);
      CHECK(difference(divided.dv, one.dv) < bound);
      // Keys and values gathered twice, gradients scattered once: 6 (c - 1) / c · s · b · width of keys.
      const std::int64_t numbers = 6 * (ranks - 1) * kRows * kSamples * kKeyHeads * kSize / ranks;
      CHECK(bytes == numbers * static_cast<std::int64_t>(sizeof(TestType)));
    }
  }
}

TEST_CASE("divided attention: every rank sees equally many pairs", "[divided]") {
  // 16 rows on 2 ranks: chunks of 4, and 68 of the 136 pairs of a causal mask each.
  for (int rank = 0; rank < 2; ++rank) {
    const ZigZag cut{2, rank};
    std::int64_t pairs = 0;
    for (std::int64_t row = 0; row < 8; ++row) pairs += cut.position(row, 8) + 1;
    CHECK(pairs == 68);
  }
  for (const int ranks : {2, 4, 8}) {
    const std::int64_t rows = 6, s = 2 * ranks * rows;  // rows: of a chunk
    for (int rank = 0; rank < ranks; ++rank) {
      const ZigZag cut{ranks, rank};
      std::int64_t pairs = 0;
      for (std::int64_t row = 0; row < 2 * rows; ++row) pairs += cut.position(row, 2 * rows) + 1;
      CHECK(pairs == (2 * ranks - 1) * rows * rows + rows * (rows + 1));
      CHECK(pairs * ranks == s * (s + 1) / 2);
      // As counting operations count them, halves of pairs on the diagonal.
      double counted = 0;
      for (const std::int64_t i : {0, 1}) {
        const std::int64_t keys = (cut.chunk(i) + 1) * rows;
        counted += visible_pairs(rows, keys, keys - rows, true, 0);
      }
      CHECK(counted * ranks == static_cast<double>(s * s) / 2);
    }
  }
}
