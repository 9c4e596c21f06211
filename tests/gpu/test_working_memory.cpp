// Memory that a plan sets aside for the CUDA kernels is enough for them: no verb makes it grow.
#include <functional>
#include <vector>

#include "backend/ops/backends.h"
#include "backend/ops/counting_ops.h"
#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"

using namespace megatron;

namespace {

struct Arguments {
  explicit Arguments(Backend& backend) : backend_(backend) {}
  Tensor operator()(Shape shape, DType type = DType::f32) {
    const auto elements = static_cast<std::size_t>(shape.elements());
    memory_.emplace_back(*backend_.device, elements * size_of(type));
    const Tensor tensor = memory_.back().tensor(shape, type);
    backend_.ops->fill(tensor, 0);
    return tensor;
  }

 private:
  Backend& backend_;
  std::vector<Buffer> memory_;
};

void check_planned(Backend& backend, const std::function<void(Ops&)>& verb) {
  const std::unique_ptr<CountingOps> plan = make_cuda_counting_ops();
  verb(*plan);
  backend.ops->reserve(plan->workspace_bytes());
  verb(*backend.ops);
  backend.device->synchronize();
  CHECK(backend.ops->workspace_bytes() == plan->workspace_bytes());
  CHECK(plan->workspace_bytes() > 0);
}

}  // namespace

TEST_CASE("working memory of sums over rows is planned") {
  Backend backend = make_cuda_backend(0);
  Arguments tensor(backend);
  const std::int64_t rows = GENERATE(3, 700), columns = GENERATE(7, 200, 1024);
  CAPTURE(rows, columns);
  const Tensor x = tensor({rows, columns}), dy = tensor({rows, columns}), sums = tensor({columns}),
               more = tensor({columns});
  const Tensor mean = tensor({rows}), rstd = tensor({rows}), gamma = tensor({columns});
  check_planned(backend, [&](Ops& ops) { ops.column_sum({.x = x, .y = sums}); });
  check_planned(backend, [&](Ops& ops) {
    ops.bias_activation_backward({.dy = dy, .x = x, .bias = gamma, .dx = dy, .dbias = sums});
  });
  const Tensor both = tensor({rows, 2 * columns}), both_sums = tensor({2 * columns});
  check_planned(backend, [&](Ops& ops) {
    ops.bias_activation_backward(
        {.dy = dy, .x = both, .bias = {}, .dx = both, .dbias = both_sums, .activation = Activation::swiglu});
  });
  check_planned(backend, [&](Ops& ops) {
    ops.layer_norm_backward({.dy = dy,
                             .x = x,
                             .gamma = gamma,
                             .mean = mean,
                             .rstd = rstd,
                             .residual_gradient = {},
                             .dx = dy,
                             .dgamma = sums,
                             .dbeta = more});
  });
}

TEST_CASE("working memory: linear activation backward is planned fused or not") {
  Backend backend = make_cuda_backend(0);
  Arguments tensor(backend);
  const std::int64_t rows = GENERATE(3, 700), columns = GENERATE(7, 200, 1024), next = 5;
  const DType type = GENERATE(DType::f32, DType::bf16);
  const Activation activation = GENERATE(Activation::gelu, Activation::swiglu);
  CAPTURE(rows, columns, name_of(type), activation == Activation::gelu);
  const std::int64_t of_product = is_gated(activation) ? 2 * columns : columns;
  const Tensor product = tensor({rows, of_product}, type), dbias = tensor({of_product});
  const LinearActivationBackwardArgs args{.dy = tensor({rows, next}, type),
                                          .weight = tensor({next, columns}, type),
                                          .product = product,
                                          .bias = {},
                                          .dactivated = tensor({rows, columns}, type),
                                          .dproduct = product,
                                          .dbias = dbias,
                                          .activation = activation};
  check_planned(backend, [&](Ops& ops) { ops.linear_activation_backward(args); });
}

TEST_CASE("working memory of embeddings, losses and norms is planned") {
  Backend backend = make_cuda_backend(0);
  Arguments tensor(backend);
  const std::int64_t n = GENERATE(5, 3000), rows = GENERATE(2, 501), h = 16;
  CAPTURE(n, rows);
  const Tensor ids = tensor({n}, DType::i32), dy = tensor({n, h}), dweight = tensor({rows, h});
  const Tensor a = tensor({n}), b = tensor({n}), c = tensor({n}), total = tensor({1}, DType::f64);
  check_planned(backend, [&](Ops& ops) { ops.embedding_backward({.ids = ids, .dy = dy, .dweight = dweight}); });
  check_planned(backend, [&](Ops& ops) {
    ops.cross_entropy_loss(
        {.maximum = a, .sum_exp = b, .target_logit = c, .weights = {}, .losses = {}, .total = total});
  });
  check_planned(backend, [&](Ops& ops) { ops.square_sum({.x = dy, .total = total}); });
}

TEST_CASE("working memory of a router's losses and of places at random is planned") {
  Backend backend = make_cuda_backend(0);
  Arguments tensor(backend);
  const std::int64_t s = GENERATE(1, 700), b = 2, experts = 4, top_k = 2;
  CAPTURE(s);
  const Tensor probabilities = tensor({s, b, experts}), log_sums = tensor({s * b}), total = tensor({1}, DType::f64);
  const Tensor chosen = tensor({s, b, top_k}, DType::i32), slots = tensor({s, b, top_k}, DType::i32);
  const Tensor counts = tensor({b, experts}, DType::i32), positions = tensor({s}, DType::i32);
  const ExpertSlots layout{.experts = experts, .capacity = 3};
  const Tensor entries = tensor({layout.count(b)}, DType::i32);
  check_planned(backend, [&](Ops& ops) {
    ops.route_losses({.probabilities = probabilities,
                      .counts = counts,
                      .log_sums = log_sums,
                      .top_k = top_k,
                      .balance = total,
                      .z = total});
  });
  check_planned(backend, [&](Ops& ops) {
    ops.plan_routes({.chosen = chosen,
                     .layout = layout,
                     .order = {.random = true, .positions = positions},
                     .slots = slots,
                     .entries = entries,
                     .counts = counts});
  });
}

TEST_CASE("working memory of attention's gradient is planned") {
  Backend backend = make_cuda_backend(0);
  Arguments tensor(backend);
  const std::int64_t s = GENERATE(1, 130), b = 2, a = 3, d = 8;
  CAPTURE(s);
  const Tensor q = tensor({s, b, a, d}), k = tensor({s, b, a, d}), v = tensor({s, b, a, d}), out = tensor({s, b, a, d});
  const Tensor lse = tensor({b, a, s});
  check_planned(backend, [&](Ops& ops) {
    ops.attention_backward({.dout = out,
                            .q = q,
                            .k = k,
                            .v = v,
                            .out = out,
                            .log_sum_exp = lse,
                            .dq = tensor({s, b, a, d}),
                            .dk = tensor({s, b, a, d}),
                            .dv = tensor({s, b, a, d}),
                            .scale = 1,
                            .mask = {},
                            .dropout = {}});
  });
}

TEST_CASE("working memory of attention with a bias of distances is planned") {
  Backend backend = make_cuda_backend(0);
  Arguments tensor(backend);
  const std::int64_t s = GENERATE(1, 130), b = 2, a = 3, d = GENERATE(8, 136);
  const DType type = GENERATE(DType::f32, DType::bf16);
  CAPTURE(s, d, name_of(type));
  const Shape shape{s, b, a, d};
  const Tensor q = tensor(shape, type), k = tensor(shape, type), v = tensor(shape, type), out = tensor(shape, type);
  const Tensor dq = tensor(shape, type), dk = tensor(shape, type), dv = tensor(shape, type), lse = tensor({b, a, s});
  AttentionMask mask;
  mask.distance_bias = tensor({a, 16}, type);
  mask.distance_buckets = {.buckets = 16, .max_distance = 64};
  const Tensor ddistance_bias = tensor({a, 16});
  check_planned(backend, [&](Ops& ops) {
    ops.attention_forward({.q = q, .k = k, .v = v, .out = out, .log_sum_exp = lse, .mask = mask, .dropout = {}});
  });
  check_planned(backend, [&](Ops& ops) {
    ops.attention_backward({.dout = out,
                            .q = q,
                            .k = k,
                            .v = v,
                            .out = out,
                            .log_sum_exp = lse,
                            .dq = dq,
                            .dk = dk,
                            .dv = dv,
                            .mask = mask,
                            .dropout = {},
                            .ddistance_bias = ddistance_bias});
  });
}
