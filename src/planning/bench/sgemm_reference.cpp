#include "planning/bench/sgemm_reference.h"

#include <algorithm>

#include "base/core/activations.h"

namespace megatron {

SgemmReference::SgemmReference(const ModelConfig& model, std::int64_t tensor, std::int64_t samples, DType type,
                               Backend& backend)
    : ops_(*backend.ops), device_(*backend.device), type_(type) {
  const std::int64_t h = model.hidden_size, part = exact_division(h, tensor, "hidden size over tensor ranks");
  const std::int64_t f = exact_division(model.ffn_hidden_size, tensor, "feed-forward size over tensor ranks");
  const std::int64_t vocab = exact_division(model.padded_vocab(), tensor, "vocabulary over tensor ranks");
  const std::int64_t rows = samples * model.sequence_length, decoder_rows = samples * model.decoder_sequence_length;
  const std::int64_t inner = std::max(f, model.moe.ffn_hidden_size / tensor);
  const std::int64_t most = std::max(rows, decoder_rows), widest = std::max({3 * part, h, 2 * inner, vocab});
  input_ = operand(most * std::max(h, inner), backend);
  output_ = operand(most * widest, backend);
  weight_ = operand(widest * h, backend);
  result_ = operand(widest * std::max(most, h), backend);
  if (!model.has_decoder()) {
    add_layers(model, tensor, "", rows, model.layers);
    add("head", rows, vocab, h, 1);
    if (model.family != "bert") return;
    add("head dense", rows, h, h, 1);
    add("pooler", samples, h, h, 1);
    add("order head", samples, 2, h, 1);
    return;
  }
  add_layers(model, tensor, "encoder ", rows, model.layers);
  add_layers(model, tensor, "decoder ", decoder_rows, model.decoder_layers);
  const auto layers = static_cast<int>(model.decoder_layers);
  add("cross query", decoder_rows, part, h, layers);
  add("cross key, value", rows, 2 * part, h, layers);
  add("cross attention output", decoder_rows, h, part, layers);
  add("head", decoder_rows, vocab, h, 1);
}

void SgemmReference::add_layers(const ModelConfig& model, std::int64_t tensor, const std::string& stack,
                                std::int64_t rows, std::int64_t layers) {
  const std::int64_t h = model.hidden_size, part = h / tensor, f = model.ffn_hidden_size / tensor;
  const auto calls = static_cast<int>(layers);
  add(stack + "query, key, value", rows, 3 * part, h, calls);
  add(stack + "attention output", rows, h, part, calls);
  const std::int64_t ups = row_named(kActivations, model.activation).gated ? 2 : 1;
  const MoeConfig& moe = model.moe;
  if (moe.experts == 0) {
    add(stack + "mlp up", rows, ups * f, h, calls);
    add(stack + "mlp down", rows, h, f, calls);
    return;
  }
  // In every layer, with equal loads.
  const std::int64_t loads = exact_division(rows * moe.top_k, moe.experts, "choices over experts");
  const std::int64_t width = exact_division(moe.ffn_hidden_size, tensor, "experts' width over tensor ranks");
  const auto experts = static_cast<int>(layers * moe.experts);
  add(stack + "router", rows, moe.experts, h, calls);
  add(stack + "expert up", loads, ups * width, h, experts);
  add(stack + "expert down", loads, h, width, experts);
}

Buffer SgemmReference::operand(std::int64_t elements, Backend& backend) {
  Buffer buffer(*backend.device, static_cast<std::size_t>(elements) * sizeof(float));
  ops_.normal({.y = buffer.tensor({1, elements}, type_), .key = 1, .global_columns = elements});
  return buffer;
}

void SgemmReference::add(const std::string& layer, std::int64_t rows, std::int64_t out, std::int64_t in, int calls) {
  const Tensor x = input_.tensor({rows, in}, type_), y = output_.tensor({rows, out}, type_);
  const Tensor weight = weight_.tensor({out, in}, type_);
  const double flops = 2.0 * calls * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
  const auto product = [&](const char* which, MatmulArgs args, Shape shape) {
    args.c = result_.tensor(shape, args.transpose_a ? DType::f32 : type_);
    products_.push_back({layer + which, args, calls, flops, {}});
  };
  product(", forward", {.a = x, .b = weight, .transpose_b = true, .c = {}}, {rows, out});
  product(", input gradient", {.a = y, .b = weight, .c = {}}, {rows, in});
  product(", weight gradient", {.a = y, .b = x, .transpose_a = true, .c = {}}, {out, in});
}

void SgemmReference::measure() {
  Seconds total;
  for (Product& product : products_) {
    const Seconds seconds = time_of([&] {
      for (int call = 0; call < product.calls; ++call) ops_.matmul(product.args);
      device_.synchronize();
    });
    product.samples.push_back(seconds);
    total = total + seconds;
  }
  totals_.push_back(total);
}

double SgemmReference::flops() const {
  double sum = 0;
  for (const Product& product : products_) sum += product.flops;
  return sum;
}

}  // namespace megatron
