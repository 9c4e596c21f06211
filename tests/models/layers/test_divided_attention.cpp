// Attention over sequences that context ranks divide, by every exchange, against one rank's: bit by bit where sums have
// one order. The bytes that travel are those of the formula.
#include "models/attention/divided_attention.h"

#include <cmath>
#include <mutex>

#include "backend/ops/backends.h"
#include "backend/ops/counting_ops.h"
#include "distributed/comm/thread_communicator.h"
#include "models/batch/batch_layout.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::attention_exchange;
using namespace megatron::test;

namespace {

// Chunks of 128 and 64 rows on 2 and 4 ranks: whole blocks of queries, and more of them than a path for few takes.
constexpr std::int64_t kAttentionRows = 512, kAttentionSamples = 2, kAttentionHeads = 4, kKeyHeads = 2, kSize = 16;

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
      : q({rows, kAttentionSamples, kAttentionHeads, kSize}),
        k({rows, kAttentionSamples, kKeyHeads, kSize}),
        v(k),
        out(q),
        dout(q),
        dq(q),
        dk(k),
        dv(k),
        log_sum_exp({kAttentionSamples, kAttentionHeads, rows}) {}
};

template <class T>
Values<T> inputs() {
  Values<T> whole(kAttentionRows);
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

  Fields(const ZigZag& cut, bool whole_rows) {
    BatchLayout layout{
        .fields = {{.name = "positions",
                    .view = &Rows::positions,
                    .shape = FieldShape::rows,
                    .source = FieldSource::row_numbers},
                   {.name = "starts", .view = &Rows::document_starts, .shape = FieldShape::samples_by_rows},
                   {.name = "lengths", .view = &Rows::lengths, .shape = FieldShape::samples}},
        .sizes = {.rows = {kAttentionRows}, .samples = kAttentionSamples}};
    layout = layout.divided(cut, whole_rows);
    buffer = BatchBuffer(layout, 1, host_memory());
    buffer.write_row_numbers([](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); });
    batch = buffer.view(layout, layout.sizes, 0);
    auto* const starts = static_cast<std::int32_t*>(buffer.at(layout.fields[1], 0));
    // By chunks, or of all rows.
    const bool all = whole_rows || !cut.cuts();
    const std::int64_t rows = all ? kAttentionRows : layout.sizes.rows[0], each = all ? rows : rows / 2;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t j = 0; j < kAttentionSamples; ++j) {
        starts[(row / each * kAttentionSamples + j) * each + row % each] =
            start_of(all ? row : cut.position(row, rows));
      }
    }
    auto* const lengths = static_cast<std::int32_t*>(buffer.at(layout.fields[2], 0));
    lengths[0] = kAttentionRows;
    lengths[1] = 400;
  }
};

/// Sets results in `whole`; bytes that this rank sends to others.
template <class T>
std::int64_t run(const Problem& problem, const AttentionExchangeRow& exchange, Communicator& world, Values<T>& whole) {
  const ProcessGrid grid(world, {.context = world.size()});
  TrafficMeter meter;
  grid.context().set_meter(&meter);
  Backend backend = make_cpu_backend();
  const TensorRegion region(grid, false);
  const ContextRegion context_region(grid);
  const ZigZag& cut = context_region.cut();
  const Fields fields(cut, exchange.whole_rows);
  const Buffer memory(*backend.device, std::size_t{1} << 23), kept(*backend.device, std::size_t{1} << 22);
  Arena scratch("scratch", memory), saved("saved", kept);
  const PassSettings pass{.exchange = exchange.kind};
  Context context{.ops = *backend.ops,
                  .region = region,
                  .saved = &saved,
                  .scratch = scratch,
                  .micro_batch = fields.batch,
                  .pass = pass,
                  .context_region = &context_region};
  Values<T> own(kAttentionRows / cut.ranks);
  move_rows(whole.q, own.q, cut, false);
  move_rows(whole.k, own.k, cut, false);
  move_rows(whole.v, own.v, cut, false);
  move_rows(whole.dout, own.dout, cut, false);
  const Owned<float> slopes({kAttentionHeads}, std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f});
  AttentionMask mask;
  mask.causal = problem.causal;
  mask.window = problem.window;
  mask.softcap = problem.softcap;
  if (problem.documents) mask.document_starts = fields.batch.main.document_starts;
  if (problem.lengths) mask.key_lengths = fields.batch.main.lengths;
  if (problem.alibi) mask.slopes = slopes;
  const Dropout dropout{.probability = problem.dropout, .key = 7, .positions = fields.batch.main.positions};
  SavedExchange exchanged;
  attend(context,
         {.q = own.q,
          .k = own.k,
          .v = own.v,
          .out = own.out,
          .log_sum_exp = own.log_sum_exp,
          .scale = 0.25f,
          .mask = mask,
          .dropout = dropout},
         exchanged);
  attend_back(context,
              {.dout = own.dout,
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
               .dropout = dropout},
              exchanged);
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

/// Same bits as one rank's, of what has one order of sums.
struct SameBits {
  bool forward, queries, keys;
};
SameBits same_bits(AttentionExchange exchange, int ranks) {
  switch (exchange) {
    case AttentionExchange::gathered: return {.forward = true, .queries = true, .keys = false};
    case AttentionExchange::ulysses: return {.forward = true, .queries = true, .keys = ranks <= kKeyHeads};
    case AttentionExchange::ring: return {.forward = false, .queries = false, .keys = false};
  }
  return {};
}

template <class T>
void check_close(const Owned<T>& divided, const Owned<T>& one, bool same) {
  if (same) {
    CHECK(divided == one);
  } else {
    CHECK(difference(divided, one) < (DTypeOf<T>::value == DType::f32 ? 1e-6 : 5e-3));
  }
}

}  // namespace

TEMPLATE_TEST_CASE("divided attention: one rank's, by every exchange", "[divided]", float, BFloat16) {
  for (const Problem& problem : kProblems) {
    Values<TestType> one = inputs<TestType>();
    run_as_threads(1, [&](Communicator& world) { CHECK(run(problem, kAttentionExchanges[0], world, one) == 0); });
    for (const AttentionExchangeRow& exchange : kAttentionExchanges) {
      for (const int ranks : {2, 4}) {
        CAPTURE(problem.name, exchange.name, ranks);
        Values<TestType> divided = inputs<TestType>();
        std::int64_t bytes = 0;
        run_as_threads(ranks, [&](Communicator& world) {
          const std::int64_t own = run(problem, exchange, world, divided);
          if (world.rank() == 0) bytes = own;
        });
        const SameBits same = same_bits(exchange.kind, ranks);
        check_close(divided.out, one.out, same.forward);
        check_close(divided.dq, one.dq, same.queries);
        check_close(divided.dk, one.dk, same.keys);
        check_close(divided.dv, one.dv, same.keys);
        CHECK(static_cast<double>(bytes) == exchange.bytes({.ranks = ranks,
                                                            .rows = kAttentionRows * kAttentionSamples,
                                                            .heads = kAttentionHeads,
                                                            .groups = kKeyHeads,
                                                            .head_size = kSize,
                                                            .element = sizeof(TestType)}));
      }
    }
  }
}

TEST_CASE("divided attention: bytes are those of the formulas", "[divided]") {
  // Llama-3-8B, 131072 tokens on 8 ranks, in elements: 704 and 294 million.
  const ExchangeSizes llama{.ranks = 8, .rows = 131072, .heads = 32, .groups = 8, .head_size = 128, .element = 1};
  const double s = 131072, h = 4096, keys = 1024, others = 7.0 / 8;
  CHECK(gathered_bytes(llama) == 6 * others * s * keys);
  CHECK(ulysses_bytes(llama) == others * s / 8 * (4 * h + 4 * keys));
  CHECK(ring_bytes(llama) == others * s * keys * (4 + 8));  // gradients in f32
  CHECK(fewest_bytes(llama).name == "ulysses");
  // Where heads are not as many as ranks, or groups neither are nor have copies, only keys can be gathered.
  CHECK(fewest_bytes({.ranks = 8, .rows = 64, .heads = 4, .groups = 4, .head_size = 8}).name == "gathered");
  CHECK(fewest_bytes({.ranks = 6, .rows = 96, .heads = 12, .groups = 4, .head_size = 8}).name == "gathered");
  // Groups of 4 heads: heads pay from 4 ranks on. One key for all: never, since each rank gets a copy.
  const auto of_ranks = [](std::int64_t ranks, std::int64_t groups) {
    return fewest_bytes({.ranks = ranks, .rows = 64, .heads = 32, .groups = groups, .head_size = 8}).name;
  };
  CHECK(of_ranks(2, 8) == "gathered");
  CHECK(of_ranks(4, 8) == "ulysses");
  CHECK(of_ranks(2, 1) == "gathered");
  CHECK(of_ranks(32, 1) == "gathered");
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
