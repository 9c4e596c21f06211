// The CUDA backend's operations one by one, at the sizes of real models: time by the GPU's own clock, bytes and
// operations a second, as shares of this GPU's own rate of copying and of multiplying 8192 x 8192 matrices, measured
// here too. Random data (zeros make products a tenth faster), medians.
//
//   bench_cuda_ops [MODEL]      gpt2_124m, gpt2_1558m, 7b (default: all); --tiny: sizes for a test of this program
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <string_view>
#include <utility>

#include "cuda/matmul_library.h"
#include "gpu/bench.h"
#include "gpu/bench_experts.h"

namespace megatron {
namespace {

struct Model {
  const char* name;
  std::int64_t sequence, batch, hidden, heads, vocabulary;
  std::int64_t rows() const { return sequence * batch; }
};

constexpr Model kModels[] = {{"gpt2_124m", 1024, 64, 768, 12, 50304},
                             {"gpt2_1558m", 1024, 16, 1600, 25, 50304},
                             {"7b", 4096, 4, 4096, 32, 50304}};
constexpr Model kTiny{"tiny", 16, 2, 64, 2, 128};

constexpr double kHalfBytes = 2, kWideBytes = 4;

/// A linear layer [rows, in] → [rows, out]: forward, both gradients.
void linear(Bench& bench, const char* name, std::int64_t rows, std::int64_t in, std::int64_t out) {
  const Tensor x = bench.random({rows, in}), weight = bench.random({out, in}), y = bench.random({rows, out});
  const Tensor dweight = bench.zeros({out, in});
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  bench.measure(fmt::format("matmul {} forward", name), 0, flops,
                [&] { bench.ops().matmul({.a = x, .b = weight, .transpose_b = true, .c = y}); });
  bench.measure(fmt::format("matmul {} input gradient", name), 0, flops,
                [&] { bench.ops().matmul({.a = y, .b = weight, .c = x}); });
  bench.measure(fmt::format("matmul {} weight gradient", name), 0, flops,
                [&] { bench.ops().matmul({.a = y, .b = x, .transpose_a = true, .c = dweight, .accumulate = true}); });
  bench.release();
}

/// Costs and savings of cuBLASLt's epilogues: the product alone is above; here with the pass after it, and fused.
void epilogues(Bench& bench, const Model& model) {
  MatmulLibrary library(bench.device());
  const std::int64_t rows = model.rows(), h = model.hidden, f = 4 * h;
  const auto compare = [&](const char* what, const MatmulArgs& product, const Epilogue& epilogue,
                           const std::function<void()>& replaced, const std::function<void()>& kept) {
    const double flops = 2.0 * static_cast<double>(product.c.elements()) *
                         static_cast<double>(product.a.dim(product.transpose_a ? 0 : 1));
    bench.measure(fmt::format("{}, apart", what), 0, flops, [&] {
      library.multiply(product);
      replaced();
    });
    if (!library.multiply(product, epilogue)) return (void)fmt::print("  {}, fused: cuBLASLt has no algorithm\n", what);
    bench.measure(fmt::format("{}, fused", what), 0, flops, [&] {
      (void)library.multiply(product, epilogue);
      kept();
    });
  };
  const Tensor x = bench.random({rows, h}), weight = bench.random({f, h}), back_weight = bench.random({h, f});
  const Tensor bias = bench.random({f}), dbias = bench.zeros({f});
  const Tensor input = bench.random({rows, f}), y = bench.random({rows, f});

  const Tensor qkv = input.view({rows * f}).slice(0, 0, rows * 3 * h).view({rows, 3 * h});
  const Tensor qkv_bias = bias.slice(0, 0, 3 * h);
  compare(
      "query-key-value, bias", {.a = x, .b = weight.slice(0, 0, 3 * h), .transpose_b = true, .c = qkv},
      {.kind = Epilogue::Kind::bias, .bias = qkv_bias.data()},
      [&] { bench.ops().add_bias({.x = qkv, .bias = qkv_bias}); }, [] {});
  compare(
      "mlp up, bias and gelu", {.a = x, .b = weight, .transpose_b = true, .c = y},
      {.kind = Epilogue::Kind::gelu, .bias = bias.data(), .gelu_input = input.data()},
      [&] { bench.ops().bias_activation_forward({.x = y, .bias = bias, .y = input}); }, [] {});
  compare(
      "mlp down, gelu's gradient", {.a = x, .b = back_weight, .c = y},
      {.kind = Epilogue::Kind::gelu_gradient, .gelu_input = input.data()},
      [&] { bench.ops().bias_activation_backward({.dy = y, .x = input, .bias = bias, .dx = y, .dbias = dbias}); },
      [&] { bench.ops().column_sum({.x = y, .y = dbias}); });
  bench.release();
}

void norms(Bench& bench, const Model& model) {
  const std::int64_t rows = model.rows(), h = model.hidden, d = h / model.heads;
  const Tensor x = bench.random({rows, h}), y = bench.random({rows, h}), residual = bench.random({rows, h});
  const Tensor gamma = bench.random({h}), beta = bench.random({h}), mean = bench.zeros({rows * model.heads}),
               rstd = bench.zeros({rows * model.heads});
  const Tensor dgamma = bench.zeros({h}), dbeta = bench.zeros({h});
  const double plane = static_cast<double>(rows * h) * kHalfBytes;
  const auto measure = [&](const std::string& name, std::int64_t n, bool centered, bool with_residual) {
    const std::int64_t columns = rows * h / n;
    const Normalization kind = centered ? Normalization::layer : Normalization::root_mean_square;
    const auto matrix = [&](const Tensor& whole) { return whole.view({n, columns}); };
    const auto parameter = [&](const Tensor& whole) { return whole.slice(0, 0, columns); };
    const Tensor means = centered ? mean.slice(0, 0, n) : Tensor(), rstds = rstd.slice(0, 0, n);
    bench.measure(fmt::format("{} forward", name), 2 * plane, 0, [&] {
      bench.ops().layer_norm_forward({.x = matrix(x),
                                      .gamma = parameter(gamma),
                                      .beta = centered ? parameter(beta) : Tensor(),
                                      .y = matrix(y),
                                      .mean = means,
                                      .rstd = rstds,
                                      .kind = kind});
    });
    bench.measure(fmt::format("{} backward", name), (with_residual ? 4 : 3) * plane, 0, [&] {
      bench.ops().layer_norm_backward({.dy = matrix(y),
                                       .x = matrix(x),
                                       .gamma = parameter(gamma),
                                       .mean = means,
                                       .rstd = rstds,
                                       .residual_gradient = with_residual ? matrix(residual) : Tensor(),
                                       .dx = matrix(residual),
                                       .dgamma = parameter(dgamma),
                                       .dbeta = centered ? parameter(dbeta) : Tensor(),
                                       .kind = kind});
    });
  };
  measure("layer norm", rows, true, true);
  measure("RMSNorm", rows, false, true);
  measure(fmt::format("RMSNorm of heads of {},", d), rows * model.heads, false, false);
  bench.release();
}

void activations(Bench& bench, const Model& model) {
  const std::int64_t rows = model.rows(), f = 4 * model.hidden;
  const double plane = static_cast<double>(rows * f) * kHalfBytes;
  const Tensor x = bench.random({rows, f}), y = bench.random({rows, f}), bias = bench.random({f});
  const Tensor dbias = bench.zeros({f}), dx = bench.random({rows, f});
  const std::pair<const char*, Activation> all[] = {
      {"gelu", Activation::gelu},     {"gelu_exact", Activation::gelu_exact}, {"relu", Activation::relu},
      {"swiglu", Activation::swiglu}, {"geglu", Activation::geglu},           {"tanh", Activation::tanh}};
  for (const auto& [name, kind] : all) {
    const bool gated = is_gated(kind);
    const Tensor result = y.view({gated ? 2 * rows : rows, gated ? f / 2 : f}).slice(0, 0, rows);
    bench.measure(fmt::format("{} forward", name), (gated ? 1.5 : 2) * plane, 0, [&, activation = kind] {
      bench.ops().bias_activation_forward({.x = x, .bias = bias, .y = result, .activation = activation});
    });
    bench.measure(fmt::format("{} backward", name), (gated ? 2.5 : 3) * plane, 0, [&, activation = kind] {
      bench.ops().bias_activation_backward(
          {.dy = result, .x = x, .bias = bias, .dx = dx, .dbias = dbias, .activation = activation});
    });
  }
  bench.measure("add_bias", 2 * plane, 0, [&] { bench.ops().add_bias({.x = x, .bias = bias}); });
  bench.measure("column_sum", plane, 0, [&] { bench.ops().column_sum({.x = x, .y = dbias}); });
  bench.release();
}

void dropout_adds(Bench& bench, const Model& model) {
  const std::int64_t h = model.hidden;
  const double plane = static_cast<double>(model.rows() * h) * kHalfBytes;
  const Shape shape{model.sequence, model.batch, h};
  const Tensor x = bench.random(shape), residual = bench.random(shape), bias = bench.random({h}),
               dbias = bench.zeros({h});
  const Tensor positions = bench.counting(model.sequence);
  for (const float probability : {0.0f, 0.1f}) {
    const Dropout dropout{.probability = probability, .key = 7, .positions = positions};
    bench.measure(fmt::format("dropout_add_forward, p {}", probability), 3 * plane, 0, [&] {
      bench.ops().dropout_add_forward({.x = x, .bias = bias, .residual = residual, .y = x, .dropout = dropout});
    });
    bench.measure(fmt::format("dropout_add_backward, p {}", probability), 2 * plane, 0, [&] {
      bench.ops().dropout_add_backward({.dy = residual, .dx = x, .dbias = dbias, .dropout = dropout});
    });
  }
  bench.release();
}

void attention(Bench& bench, const Model& model) {
  const std::int64_t s = model.sequence, b = model.batch, a = model.heads, d = model.hidden / a;
  const Tensor qkv = bench.random({s, b, 3, a, d}), dqkv = bench.random({s, b, 3, a, d});
  const auto part = [&](const Tensor& whole, std::int64_t which) {
    const Tensor flat = whole.view({s, b, 3 * a, d});
    return flat.slice(2, which * a, a);
  };
  const Tensor out = bench.random({s, b, a, d}), dout = bench.random({s, b, a, d}), lse = bench.zeros({b, a, s});
  const Tensor positions = bench.counting(s);
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
  // Causal: half of the square, two products forward and five backward; of documents that part of it that they are.
  const double product = static_cast<double>(s * s * b * a * d);
  const Tensor ddistance_bias = bench.zeros({a, DistanceBuckets{}.buckets});
  const auto measure = [&](const std::string& name, double share, const AttentionMask& mask, const Dropout& dropout) {
    bench.measure(fmt::format("attention_forward{}", name), 0, 2 * share * product, [&] {
      bench.ops().attention_forward({.q = part(qkv, 0),
                                     .k = part(qkv, 1),
                                     .v = part(qkv, 2),
                                     .out = out,
                                     .log_sum_exp = lse,
                                     .scale = scale,
                                     .mask = mask,
                                     .dropout = dropout});
    });
    bench.measure(fmt::format("attention_backward{}", name), 0, 5 * share * product, [&] {
      bench.ops().attention_backward({.dout = dout,
                                      .q = part(qkv, 0),
                                      .k = part(qkv, 1),
                                      .v = part(qkv, 2),
                                      .out = out,
                                      .log_sum_exp = lse,
                                      .dq = part(dqkv, 0),
                                      .dk = part(dqkv, 1),
                                      .dv = part(dqkv, 2),
                                      .scale = scale,
                                      .mask = mask,
                                      .dropout = dropout,
                                      .ddistance_bias = mask.distance_bias ? ddistance_bias : Tensor()});
    });
  };
  const auto documents = [&](std::int64_t length) {
    AttentionMask mask;
    mask.document_starts = bench.document_starts(b, s, length);
    return mask;
  };
  AttentionMask alibi;
  alibi.slopes = bench.random({a}, DType::f32);
  measure("", 1, {}, {});
  measure(", p 0.1", 1, {}, {.probability = 0.1f, .key = 9, .positions = positions});
  measure(", one document", 1, documents(s), {});
  measure(", 8 documents", 1.0 / 8, documents(s / 8), {});
  measure(", ALiBi", 1, alibi, {});
  AttentionMask capped;
  capped.softcap = 50;
  measure(", soft cap", 1, capped, {});
  AttentionMask encoder, distances;
  encoder.causal = distances.causal = false;
  distances.distance_bias = bench.random({a, distances.distance_buckets.buckets});
  measure(", whole square", 2, encoder, {});
  measure(", whole square, bias of distances", 2, distances, {});
  const Tensor block = bench.zeros({s, b, a, d}), merged = bench.zeros({s, b, a, d}, DType::f32);
  const Tensor log_sums = bench.zeros({b, a, s}, DType::f32);
  bench.measure("merge_attention", static_cast<double>(s * b * a * d) * (kHalfBytes + 8), 0, [&] {
    bench.ops().merge_attention({.part = block, .part_log_sum_exp = log_sums, .out = merged, .log_sum_exp = log_sums});
  });
  const Tensor tokens = bench.tokens(s * b, s), frequencies = bench.zeros({d / 2});
  bench.measure("rotary, queries and keys", 4 * static_cast<double>(s * b * a * d) * kHalfBytes, 0, [&] {
    bench.ops().rotary(
        {.x = qkv.view({s, b, 3 * a, d}).slice(2, 0, 2 * a), .positions = tokens, .inverse_frequencies = frequencies});
  });
  bench.release();
}

void embedding_and_loss(Bench& bench, const Model& model) {
  const std::int64_t n = model.rows(), h = model.hidden, vocabulary = model.vocabulary;
  const double plane = static_cast<double>(n * h) * kHalfBytes,
               square = static_cast<double>(n * vocabulary) * kHalfBytes;
  const Tensor ids = bench.tokens(n, vocabulary);
  {
    const Tensor weight = bench.random({vocabulary, h}), y = bench.random({n, h}),
                 dweight = bench.zeros({vocabulary, h});
    bench.measure("embedding_forward", 2 * plane, 0,
                  [&] { bench.ops().embedding_forward({.ids = ids, .weight = weight, .y = y}); });
    bench.measure("embedding_backward", plane + 2 * plane / kHalfBytes * kWideBytes, 0,
                  [&] { bench.ops().embedding_backward({.ids = ids, .dy = y, .dweight = dweight}); });
  }
  const Tensor logits = bench.random({n, vocabulary}), maximum = bench.zeros({n}), sums = bench.zeros({n});
  const Tensor target = bench.zeros({n}), total = bench.zeros({1}, DType::f64);
  bench.measure("cross_entropy_local", square, 0, [&] {
    bench.ops().cross_entropy_local({.logits = logits,
                                     .targets = ids,
                                     .vocab_size = vocabulary,
                                     .maximum = maximum,
                                     .sum_exp = sums,
                                     .target_logit = target});
  });
  bench.measure("cross_entropy_loss", 3 * static_cast<double>(n) * kWideBytes, 0, [&] {
    bench.ops().cross_entropy_loss(
        {.maximum = maximum, .sum_exp = sums, .target_logit = target, .weights = {}, .losses = {}, .total = total});
  });
  bench.measure("cross_entropy_backward", 2 * square, 0, [&] {
    bench.ops().cross_entropy_backward({.logits = logits,
                                        .targets = ids,
                                        .vocab_size = vocabulary,
                                        .maximum = maximum,
                                        .sum_exp = sums,
                                        .weights = {},
                                        .scale = 1});
  });
  bench.release();
}

/// Over as many parameters as four layers have.
void optimizer(Bench& bench, const Model& model) {
  const std::int64_t n = 48 * model.hidden * model.hidden;
  const Tensor value = bench.random({n}, DType::f32), gradient = bench.random({n}, DType::f32), m = bench.zeros({n});
  const Tensor v = bench.zeros({n}), half = bench.zeros({n}, DType::bf16), skip = bench.zeros({1});
  const Tensor factor = bench.zeros({1}), total = bench.zeros({1}, DType::f64);
  const double plane = static_cast<double>(n) * kWideBytes;
  bench.measure("adamw", 7 * plane, 0, [&] {
    bench.ops().adamw({.value = value,
                       .gradient = gradient,
                       .m = m,
                       .v = v,
                       .clip_factor = factor,
                       .skip = skip,
                       .learning_rate = 1e-6f,
                       .weight_decay = 0.1f});
  });
  bench.measure("lion", 5 * plane, 0, [&] {
    bench.ops().lion({.value = value,
                      .gradient = gradient,
                      .m = m,
                      .clip_factor = factor,
                      .skip = skip,
                      .learning_rate = 1e-6f,
                      .weight_decay = 0.1f});
  });
  bench.measure("square_sum", plane, 0, [&] { bench.ops().square_sum({.x = gradient, .total = total}); });
  bench.measure("divide_by_norm", 2 * plane, 0,
                [&] { bench.ops().divide_by_norm({.x = m, .square_sum = total, .epsilon = 1e-7f}); });
  const Tensor rounded = bench.zeros({n}, DType::bf16);
  bench.measure("adamw, states in bf16", 5 * plane, 0, [&] {
    bench.ops().adamw({.value = value,
                       .gradient = gradient,
                       .m = half,
                       .v = rounded,
                       .draws = {.keys = {3, 4}, .columns = 4 * model.hidden},
                       .clip_factor = factor,
                       .skip = skip,
                       .learning_rate = 1e-6f});
  });
  bench.measure("copy, f32 to bf16", 1.5 * plane, 0, [&] { bench.ops().copy(value, half); });
  bench.measure("fill", plane, 0, [&] { bench.ops().fill(m, 0); });
  bench.measure("add", 3 * plane, 0, [&] { bench.ops().add(gradient, v); });
  bench.measure("normal", plane, 0, [&] {
    bench.ops().normal({.y = m.view({1, n}), .key = 3, .deviation = 1, .global_columns = n});
  });
  bench.release();
}

void run(Bench& bench, const Model& model) {
  fmt::print("\n{}: {} sequences of {} tokens, hidden size {}, {} heads, bf16\n", model.name, model.batch,
             model.sequence, model.hidden, model.heads);
  const std::int64_t rows = model.rows(), h = model.hidden;
  linear(bench, "query-key-value", rows, h, 3 * h);
  linear(bench, "attention output", rows, h, h);
  linear(bench, "mlp up", rows, h, 4 * h);
  linear(bench, "mlp down", rows, 4 * h, h);
  linear(bench, "logits", rows, h, model.vocabulary);
  epilogues(bench, model);
  attention(bench, model);
  norms(bench, model);
  activations(bench, model);
  dropout_adds(bench, model);
  embedding_and_loss(bench, model);
  ExpertBench(bench, model.sequence, model.batch, h, 8, 2).run();
  ExpertBench(bench, model.sequence, model.batch, h, 64, 8).run();
  bench_mixed_rows(bench, model.sequence, model.batch, h);
  optimizer(bench, model);
}

int run_bench(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no GPU is visible");
    return 77;
  }
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  const bool tiny = wanted == "--tiny";
  bool known = tiny || wanted.empty();
  for (const Model& model : kModels) known = known || wanted == model.name;
  if (argc > 2 || !known) {
    std::fputs("usage: bench_cuda_ops [gpt2_124m | gpt2_1558m | 7b | --tiny]\n", stderr);
    return 2;
  }
  Bench bench(tiny);
  bench.measure_ceilings();
  if (tiny) run(bench, kTiny);
  for (const Model& model : kModels) {
    if (!tiny && (wanted.empty() || wanted == model.name)) run(bench, model);
  }
  return 0;
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  try {
    return megatron::run_bench(argc, argv);
  } catch (const megatron::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.exit_code();
  }
}
