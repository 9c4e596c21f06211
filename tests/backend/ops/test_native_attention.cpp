// Attention in bf16 with each kind of products that this processor has.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "backend/ops/products_here.h"
#include "support/attention_check.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Each relative to the whole tensor.
struct Errors {
  double out, dq, dk, dv;
};

Errors errors_of(Ops& ops, const AttentionCase& c) {
  const Inputs<BFloat16> x(c);
  Run<BFloat16> run(c, x);
  run.execute(ops);
  const AttentionResult expected = reference_attention(c, x.q, x.k, x.v, x.dout, x.bias);
  return {relative_error(run.out.values(), expected.out), relative_error(run.dq.values(), expected.dq),
          relative_error(run.dk.values(), expected.dk), relative_error(run.dv.values(), expected.dv)};
}

void check_largest(const Errors& errors, const Errors& largest) {
  CHECK(errors.out < largest.out);
  CHECK(errors.dq < largest.dq);
  CHECK(errors.dk < largest.dk);
  CHECK(errors.dv < largest.dv);
}

bool same(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

void check_same_bits(const Run<BFloat16>& a, const Run<BFloat16>& b) {
  CHECK(same(a.out.values(), b.out.values()));
  CHECK(same(a.dq.values(), b.dq.values()));
  CHECK(same(a.dk.values(), b.dk.values()));
  CHECK(same(a.dv.values(), b.dv.values()));
}

/// Hands out one block at a time, of NaN, and looks after the bytes that follow it.
class Guarded final : public Allocator {
 public:
  void* allocate(std::size_t bytes) override {
    bytes_ = bytes;
    memory_ = static_cast<unsigned char*>(device_.allocate(bytes + kGuard));
    std::memset(memory_, kFilling, bytes + kGuard);
    return memory_;
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    was_intact_ = intact();
    memory_ = nullptr;
    device_.deallocate(memory, bytes + kGuard);
  }
  bool intact() const {
    if (memory_ == nullptr) return was_intact_;
    return was_intact_ && std::all_of(memory_ + bytes_, memory_ + bytes_ + kGuard,
                                      [](unsigned char byte) { return byte == kFilling; });
  }

 private:
  static constexpr std::size_t kGuard = 1 << 16;
  static constexpr unsigned char kFilling = 0xFF;
  CpuDevice device_;
  std::size_t bytes_ = 0;
  unsigned char* memory_ = nullptr;
  bool was_intact_ = true;
};

/// Later queries than keys begin with, other numbers of both, and several key heads.
std::vector<AttentionCase> awkward_cases() {
  AttentionCase grouped = plain(600, 1, 4, 16), chunk = plain(130, 2, 4, 72), cross = plain(33, 2, 2, 40, false);
  grouped.key_heads = 2;
  chunk.key_heads = 1;
  chunk.keys = 330;
  chunk.query_offset = 200;
  chunk.offset_step = -90;
  cross.keys = 129;
  cross.key_lengths = {129, 17};
  AttentionCase window = chunk, documents = plain(700, 1, 1, 8);
  window.window = 45;
  for (std::int32_t i = 0; i < 700; ++i) documents.document_starts.push_back(i / 610 * 610);
  return {grouped, chunk, cross, window, documents, plain(1100, 1, 1, 16), plain(70, 1, 2, 256), plain(1, 1, 1, 64)};
}

}  // namespace

TEST_CASE("native attention: masks, groups, biases, caps and dropout", "[attention]") {
  check_each([](Ops& ops) {
    const double rounding = kTolerance<BFloat16>;
    for (const auto& [s, b, a, d] : {std::array<std::int64_t, 4>{11, 2, 3, 16}, {33, 3, 2, 5}, {129, 2, 2, 64}}) {
      for (AttentionCase c : masked_cases(s, b, a, d)) {
        check_case<BFloat16>(ops, c, rounding);
        check_case<BFloat16>(ops, biased(c), rounding);
        add_dropout(c, 0.3);
        check_case<BFloat16>(ops, capped(c), rounding);
      }
    }
    for (AttentionCase c : awkward_cases()) {
      check_case<BFloat16>(ops, c, rounding);
      add_dropout(c, 0.2);
      check_case<BFloat16>(ops, c, rounding);
    }
  });
}

TEST_CASE("native attention: errors against fp64 and those of f32 products", "[attention]") {
  // One rounding of results alone is 1.7e-3; factors of bf16 add 1 to 2e-3.
  const AttentionCase c = plain(300, 1, 4, 64);
  CpuDevice device;
  CpuOps widened(device, 1, HalfProducts::widened);
  check_largest(errors_of(widened, c), {.out = 1.8e-3, .dq = 2e-3, .dk = 2e-3, .dv = 1.8e-3});
  for (const HalfProducts products : require_native_products()) {
    INFO(name_of(products));
    CpuOps ops(device, 1, products);
    check_largest(errors_of(ops, c), {.out = 2.1e-3, .dq = 2.8e-3, .dk = 2.8e-3, .dv = 2.5e-3});
  }
}

TEST_CASE("native attention: keys that no query sees may hold NaN", "[attention]") {
  check_each([](Ops& ops) {
    AttentionCase c = plain(70, 2, 2, 24);  // a cache of 150 keys, of which the samples have 81 and 90
    c.keys = 150;
    c.query_offset = 11;
    c.offset_step = 9;
    c.window = 75;  // and have no use for the first
    Inputs<BFloat16> x(c);
    const AttentionResult expected = reference_attention(c, x.q, x.k, x.v, x.dout, x.bias);
    for (std::int64_t sample = 0; sample < 2; ++sample) {
      for (std::int64_t key = 0; key < c.keys; ++key) {
        const std::int64_t first = c.offset(sample);
        if (key + c.window > first && key < first + c.queries) continue;
        for (std::int64_t i = 0; i < c.key_heads * c.size; ++i) {
          const std::size_t at = c.at_key(key, sample, 0) + static_cast<std::size_t>(i);
          x.k[at] = x.v[at] = std::numeric_limits<double>::quiet_NaN();
        }
      }
    }
    Run<BFloat16> run(c, x);
    run.execute(ops);
    check_results(run, expected, kTolerance<BFloat16>);
  });
}

TEST_CASE("native attention: it stays within the memory that is planned", "[attention]") {
  for (const HalfProducts products : require_native_products()) {
    INFO(name_of(products));
    for (AttentionCase c : awkward_cases()) {
      CAPTURE(c.queries, c.keys, c.size);
      Guarded memory;
      CpuOps ops(memory, 1, products);
      check_case<BFloat16>(ops, c, kTolerance<BFloat16>);
      CHECK(memory.intact());
    }
  }
}

TEST_CASE("native attention: the same bits on any number of threads", "[attention]") {
  AttentionCase one_head = plain(700, 1, 1, 32), grouped = plain(161, 2, 6, 64);
  grouped.key_heads = 2;
  add_dropout(grouped, 0.25);
  CpuDevice device;
  for (const HalfProducts products : require_native_products()) {
    INFO(name_of(products));
    for (const AttentionCase& c : {one_head, biased(grouped)}) {
      const Inputs<BFloat16> x(c);
      Run<BFloat16> alone(c, x);
      CpuOps ops(device, 1, products);
      alone.execute(ops);
      for (const int threads : {2, 3}) {
        CpuOps team(device, threads, products);
        Run<BFloat16> run(c, x);
        run.execute(team);
        check_same_bits(run, alone);
        CHECK(run.dbias == alone.dbias);
      }
    }
  }
}
