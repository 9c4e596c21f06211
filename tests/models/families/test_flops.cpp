#include "base/core/error.h"
#include "models/families/flops.h"
#include "support/catch.h"

using namespace megatron;

namespace {

ModelConfig resolved_gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t sequence,
                         std::int64_t vocab) {
  ModelConfig model;
  model.layers = layers;
  model.hidden_size = hidden;
  model.attention_heads = model.query_groups = heads;
  model.ffn_hidden_size = 4 * hidden;
  model.sequence_length = model.max_position_embeddings = sequence;
  model.vocab_size = vocab;
  return model;
}

/// The published count of an iteration (attention's whole square, not the causal half), full recomputation or none:
/// 24 · passes · B s L h² (1 + s / 6h) + 6 B s h V, with 4 passes (forward, forward again, twice backward) or 3. The
/// papers' 96 B s L h² (1 + s / 6h + V / 16Lh) and 72 B s L h² (1 + s / 6h + V / 12Lh) are these.
double analytic_iteration(const ModelConfig& model, double batch, bool recompute) {
  const auto L = static_cast<double>(model.layers), h = static_cast<double>(model.hidden_size);
  const auto s = static_cast<double>(model.sequence_length), V = static_cast<double>(model.padded_vocab());
  if (recompute) return 96 * batch * s * L * h * h * (1 + s / (6 * h) + V / (16 * L * h));
  return 72 * batch * s * L * h * h * (1 + s / (6 * h) + V / (12 * L * h));
}

double attention_square_half(const ModelConfig& model, double passes) {
  return passes * 2 * static_cast<double>(model.layers) * static_cast<double>(model.hidden_size) *
         static_cast<double>(model.sequence_length);
}

}  // namespace

TEST_CASE("flops: 175B in 32 s on 1024 GPUs are the published 137.66 TFLOP/s each") {
  const ModelConfig model = resolved_gpt(96, 12288, 96, 2048, 51200);
  CHECK(analytic_iteration(model, 1536, true) / (32.0 * 1024) / 1e12 == Approx(137.66).margin(0.005));
}

TEST_CASE("flops: the causal count is the published one less half the square") {
  const ModelConfig model = resolved_gpt(96, 12288, 96, 2048, 51200);
  const double tokens = 1536.0 * 2048;
  const FlopsPerToken none = flops_per_token(model), full = flops_per_token(model, model.layers);
  // The published recomputation repeats the last projection of each layer too.
  const double last_projections = 2.0 * 96 * 12288 * 4 * 12288;
  CHECK(none.model == Approx(analytic_iteration(model, 1536, false) / tokens - attention_square_half(model, 3)));
  CHECK(full.hardware + last_projections ==
        Approx(analytic_iteration(model, 1536, true) / tokens - attention_square_half(model, 4)));
  CHECK(full.model == none.model);
  CHECK(none.hardware == none.model);
  CHECK(flops_per_token(model, 24).hardware - none.model == Approx((full.hardware - none.model) / 4));
}

TEST_CASE("the published weak-scaling table follows from the formula") {
  struct Row {
    std::int64_t hidden, layers, heads;
    double gpus, batch, teraflops, petaflops, seconds;
  };
  const Row rows[] = {
      {2304, 24, 24, 32, 512, 137, 4.4, 3.53},         {3072, 30, 32, 64, 512, 138, 8.8, 3.70},
      {4096, 36, 32, 128, 512, 142, 18.2, 3.70},       {6144, 40, 48, 256, 1024, 135, 34.6, 9.40},
      {8192, 48, 64, 512, 1536, 138, 70.8, 14.5},      {10240, 60, 80, 1024, 1792, 140, 143.8, 16.1},
      {12288, 80, 96, 1536, 2304, 148, 227.1, 24.8},   {16384, 96, 128, 1920, 2160, 155, 297.4, 37.6},
      {20480, 105, 128, 2520, 2520, 163, 410.2, 54.1}, {25600, 128, 160, 3072, 3072, 163, 502.0, 102.6},
  };
  for (const Row& row : rows) {
    const ModelConfig model = resolved_gpt(row.layers, row.hidden, row.heads, 2048, 51200);
    CAPTURE(row.hidden);
    CHECK(row.gpus * row.teraflops / 1000 == Approx(row.petaflops).epsilon(0.006));
    CHECK(analytic_iteration(model, row.batch, true) / (row.gpus * row.teraflops * 1e12) ==
          Approx(row.seconds).epsilon(0.005));
  }
}

TEST_CASE("flops: only the matrices and the padded head are counted") {
  // GPT-2 124M: 12 layers of 12 h² and the head of 50304 rows; no positions, biases or norms.
  const ModelConfig model = resolved_gpt(12, 768, 12, 1024, 50257);
  CHECK(multiplying_parameters(model) == 12LL * 12 * 768 * 768 + 50304LL * 768);
  CHECK(flops_per_token(model).model ==
        6.0 * static_cast<double>(multiplying_parameters(model)) + 6.0 * 12 * 768 * 1024);

  ModelConfig grouped = model;  // 4 key/value groups of 64, gated
  grouped.query_groups = 4;
  grouped.activation = "swiglu";
  CHECK(multiplying_parameters(grouped) ==
        12LL * (768 * 768 + 2 * 4 * 64 * 768 + 768 * 768 + 3 * 768 * 3072) + 50304LL * 768);

  ModelConfig wide = model;  // heads of 100 channels: 1200 of them
  wide.given_head_size = 100;
  CHECK(multiplying_parameters(wide) == 12LL * (4 * 1200 * 768 + 8 * 768 * 768) + 50304LL * 768);

  CHECK_THROWS_AS(multiplying_parameters(ModelConfig{}), Error);
}

TEST_CASE("flops: experts count by the tokens in them and dense parts as a whole") {
  ModelConfig model = resolved_gpt(12, 768, 12, 1024, 50257);
  model.moe.experts = 8;
  model.moe.every = 2;  // six layers
  model.moe.ffn_hidden_size = 1024;
  const std::int64_t attention = 12LL * 4 * 768 * 768, head = 50304LL * 768, dense = 6LL * 8 * 768 * 768;
  const std::int64_t experts = 6LL * (8 * 768 + 2 * 2 * 768 * 1024), rest = attention + head + dense + experts;
  CHECK(multiplying_parameters(model) == rest);
  const double repeated = flops_per_token(model, 12).hardware - flops_per_token(model).model;

  ModelConfig shared = model;
  shared.moe.shared_experts = 3;
  CHECK(multiplying_parameters(shared) == rest + 6LL * 2 * 768 * 3 * 1024);
  // Recomputation repeats the first of their two matrices; behind a gate both.
  CHECK(flops_per_token(shared, 12).hardware - flops_per_token(shared).model ==
        Approx(repeated + 2.0 * 6 * 768 * 3 * 1024));
  shared.moe.shared_gate = true;
  CHECK(multiplying_parameters(shared) == rest + 6LL * (2 * 768 * 3 * 1024 + 768));
  CHECK(flops_per_token(shared, 12).hardware - flops_per_token(shared).model ==
        Approx(repeated + 2.0 * 6 * (2 * 768 * 3 * 1024 + 768)));

  ModelConfig residual = model;
  residual.moe.residual = true;
  CHECK(multiplying_parameters(residual) == rest + 6LL * (2 * 768 * 3072 + 2 * 768));
  CHECK(flops_per_token(residual, 12).hardware - flops_per_token(residual).model ==
        Approx(repeated + 2.0 * 6 * (2 * 768 * 3072 + 2 * 768)));
}

TEST_CASE("a window leaves attention as much work as it leaves pairs") {
  ModelConfig model = resolved_gpt(12, 768, 12, 1024, 50257);
  const double whole = flops_per_token(model).model, rest = 6.0 * static_cast<double>(multiplying_parameters(model));
  for (const std::int64_t window : {1, 100, 512, 1023, 1024, 5000}) {
    CAPTURE(window);
    model.attention_window = window;
    double pairs = 0;  // half of each query's own counts, as of the diagonal of a causal square
    for (std::int64_t query = 0; query < 1024; ++query) pairs += static_cast<double>(std::min(query + 1, window)) - 0.5;
    const double share = (flops_per_token(model).model - rest) / (whole - rest);
    CHECK(share == Approx(pairs / (1024.0 * 1024 / 2)).margin(1e-3));
    if (window >= 1024) CHECK(share == 1);
  }
}
