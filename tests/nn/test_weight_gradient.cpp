// How a weight gradient is cut into two products between which communication is moved along.
#include <catch2/catch.hpp>
#include <vector>

#include "comm/thread_communicator.h"
#include "nn/linear.h"
#include "ops/ops_decorator.h"
#include "support/communicator_cases.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct CountedProducts final : OpsDecorator {
  using OpsDecorator::OpsDecorator;
  void matmul(const MatmulArgs& args) override {
    rows.push_back(args.c.dim(0));
    OpsDecorator::matmul(args);
  }
  void pass(const char*, const std::function<void()>& call) override { call(); }
  std::vector<std::int64_t> rows;
};

/// Rows of the products that make the gradient of a column-parallel matrix [out, 3].
std::vector<std::int64_t> products(Communicator& world, int tensor, std::int64_t out) {
  const ProcessGrid grid(world, {.tensor = tensor, .data = world.size() / tensor});
  const TensorRegion region(grid, false);
  Backend backend = make_cpu_backend();
  CountedProducts ops(std::move(backend.ops));
  Arena saved("saved"), scratch("scratch");
  const MicroBatch batch{};
  Context context{ops, region, saved, scratch, batch};
  const Owned<float> dy = random_tensor({5, out}, 1), x = random_tensor({5, 3}, 2);
  Owned<float> gradient({out, 3});
  add_weight_gradient(
      context, {.layer = WeightProduct::Layer::column_parallel, .dy = dy, .x = x, .gradient = gradient.tensor()});
  std::vector<double> want(static_cast<std::size_t>(out * 3));
  for (std::int64_t row = 0; row < out * 3; ++row) {
    for (std::int64_t k = 0; k < 5; ++k) {
      want[static_cast<std::size_t>(row)] +=
          static_cast<double>(dy[k * out + row / 3]) * static_cast<double>(x[k * 3 + row % 3]);
    }
  }
  communicator_cases::expect(difference(gradient, want, 1e-5).empty(), "wrong gradient");
  return ops.rows;
}

}  // namespace

TEST_CASE("weight gradient: halves are whole tiles of 128 rows") {
  using Rows = std::vector<std::int64_t>;
  run_as_threads(2, [](Communicator& world) {
    for (const auto& [out, want] : std::vector<std::pair<std::int64_t, Rows>>{
             {600, {256, 344}}, {512, {256, 256}}, {256, {128, 128}}, {255, {255}}, {7, {7}}}) {
      communicator_cases::expect(products(world, 2, out) == want, "{} rows", out);
      communicator_cases::expect(products(world, 1, out) == Rows{out}, "{} rows on one tensor rank", out);
    }
  });
}
