// Counts of attention by counting operations.
#include <algorithm>
#include <cstdint>

#include "backend/ops/counting_ops.h"
#include "support/catch.h"

using namespace megatron;

namespace {

/// Row by row: each sees half of the pair on its own position.
double counted_pairs(std::int64_t queries, std::int64_t keys, std::int64_t offset, bool causal, std::int64_t window) {
  double pairs = 0;
  for (std::int64_t i = 0; i < queries; ++i) {
    const double position = static_cast<double>(offset + i) + 0.5, all = static_cast<double>(keys);
    const double high = causal || window > 0 ? std::clamp(position, 0.0, all) : all;
    const double low = window > 0 ? std::clamp(position - static_cast<double>(window), 0.0, all) : 0;
    pairs += high - low;
  }
  return pairs;
}

}  // namespace

TEST_CASE("the pairs that a mask leaves are those that rows see") {
  for (const std::int64_t queries : {1, 2, 7, 64}) {
    for (const std::int64_t keys : {0, 1, 7, 40, 64, 200}) {
      for (const std::int64_t offset : {0, 1, 13, 63, 199, 500}) {
        for (const std::int64_t window : {0, 1, 5, 64, 1000}) {
          for (const bool causal : {true, false}) {
            CAPTURE(queries, keys, offset, window, causal);
            CHECK(visible_pairs(queries, keys, offset, causal, window) ==
                  Approx(counted_pairs(queries, keys, offset, causal, window)));
          }
        }
      }
    }
  }
  CHECK(visible_share(1024, true, 0) == 0.5);
  CHECK(visible_share(1024, false, 0) == 1);
  CHECK(visible_share(1024, true, 256) == Approx(0.25 - 0.03125));
}

TEST_CASE("attention is counted as far as its mask leaves scores") {
  const std::int64_t b = 3, a = 4, d = 8;
  const auto flops = [&](std::int64_t queries, std::int64_t keys, const AttentionMask& mask) {
    // Views of nothing: counts follow from shapes.
    const auto view = [&](std::int64_t s) { return Tensor(nullptr, {s, b, a, d}, DType::f32); };
    CountingOps ops;
    ops.attention_forward({.q = view(queries),
                           .k = view(keys),
                           .v = view(keys),
                           .out = view(queries),
                           .log_sum_exp = {},
                           .mask = mask,
                           .dropout = {}});
    return ops.attention_flops() / (4.0 * b * a * d);
  };
  AttentionMask causal, whole, cached;
  whole.causal = false;
  const std::int32_t offsets[b] = {};
  cached.query_offsets = ConstTensor(offsets, {b}, DType::i32);
  CHECK(flops(64, 64, causal) == 64 * 64 / 2);
  CHECK(flops(64, 64, whole) == 64 * 64);
  CHECK(flops(16, 100, whole) == 16 * 100);
  CHECK(flops(16, 100, causal) == 16 * 16 / 2);
  CHECK(flops(0, 100, causal) == 0);
  CHECK(flops(1, 1000, cached) == 999.5);  // decoding reads all keys
  CHECK(flops(100, 1000, cached) == 100 * 950);
  cached.window = 10;
  CHECK(flops(1, 1000, cached) == 10);
}
