#include "bench/sgemm_reference.h"

#include <algorithm>

namespace megatron {

SgemmReference::SgemmReference(const ModelConfig& model, std::int64_t tensor, std::int64_t rows, Backend& backend)
    : ops_(*backend.ops), device_(*backend.device) {
  const auto share = [tensor](std::int64_t whole) {
    return exact_division(whole, tensor, "a layer over tensor ranks");
  };
  const std::int64_t h = model.hidden_size, part = share(h);
  const std::int64_t f = share(model.ffn_hidden_size), vocab = share(model.padded_vocab());
  const std::int64_t widest = std::max({3 * part, h, f, vocab});
  input_ = operand(rows * std::max(h, f), backend);
  output_ = operand(rows * widest, backend);
  weight_ = operand(std::max({widest * h, h * f}), backend);
  result_ = operand(std::max({widest * rows, widest * h, h * f}), backend);
  const auto layers = static_cast<int>(model.layers);
  add("query, key, value", rows, 3 * part, h, layers);
  add("attention output", rows, h, part, layers);
  add("mlp up", rows, f, h, layers);
  add("mlp down", rows, h, f, layers);
  add("head", rows, vocab, h, 1);
}

Buffer SgemmReference::operand(std::int64_t elements, Backend& backend) {
  Buffer buffer(*backend.device, static_cast<std::size_t>(elements) * sizeof(float));
  ops_.normal({.y = buffer.tensor({1, elements}, DType::f32), .key = 1, .global_columns = elements});
  return buffer;
}

void SgemmReference::add(const std::string& layer, std::int64_t rows, std::int64_t out, std::int64_t in, int calls) {
  const Tensor x = input_.tensor({rows, in}, DType::f32), y = output_.tensor({rows, out}, DType::f32);
  const Tensor weight = weight_.tensor({out, in}, DType::f32);
  const double flops = 2.0 * calls * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
  const auto product = [&](const char* which, MatmulArgs args, Shape shape) {
    args.c = result_.tensor(shape, DType::f32);
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
