// Verbs allocate nothing: counted here by replacing the program's operator new.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "ops/device.h"
#include "ops/ops.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

namespace {
std::atomic<long> allocations{0};
}

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

TEST_CASE("no row-wise or elementwise verb allocates") {
  const Backend backend = make_cpu_backend(GENERATE(1, 2));
  Ops& ops = *backend.ops;
  const std::int64_t s = 4, b = 2, h = 2050, n = s * b;
  Owned<float> x({s, b, h}), y({s, b, h}), bias({h}), dbias({h}), mean({n}), rstd({n}), one({1}, 1.0f), zero({1});
  Owned<double> total({1});
  const Owned<std::int32_t> ids = random_ids(n, 4, 1), positions = counting_ids(s);
  const Dropout dropout{.probability = 0.1f, .key = 1, .positions = positions};

  const long before = allocations;
  ops.add_bias({x, bias});
  ops.column_sum({x, dbias});
  ops.bias_gelu_forward({x, bias, y});
  ops.bias_gelu_backward({y, x, bias, y, dbias});
  ops.dropout_add_forward({x, bias, x, y, dropout});
  ops.dropout_add_backward({x, y, dbias, dropout});
  ops.layer_norm_forward({x, bias, bias, y, mean, rstd});
  ops.layer_norm_backward({y, x, bias, mean, rstd, {}, y, dbias, dbias});
  ops.embedding_forward({ids, x, 0, y, false});
  ops.embedding_backward({ids, y, 0, x});
  ops.cross_entropy_local({x, ids, 0, h, mean, rstd, mean});
  ops.cross_entropy_rescale({mean, mean, rstd});
  ops.cross_entropy_loss({mean, rstd, mean, {}, {}, total});
  ops.cross_entropy_backward({x, ids, 0, h, mean, rstd, {}, 1});
  ops.square_sum({x, total});
  ops.clip_factor(
      {.square_sum = total, .maximum = 1, .norm = mean.tensor().slice(0, 0, 1), .factor = one, .skip = zero});
  ops.adamw({.value = x, .gradient = y, .m = x, .v = y, .clip_factor = one, .skip = zero});
  ops.normal({.y = x, .key = 1, .global_columns = h});
  ops.fill(x, 0);
  ops.copy(x, y);
  ops.add(x, y);
  ops.scale(y, 2);
  const long after = allocations;
  CHECK(after == before);
  CHECK(before > 0);
}
