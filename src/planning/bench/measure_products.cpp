// Rates of products and attention at a grid of sizes, narrow ones among them, and of the memory.
#include <algorithm>
#include <span>

#include "backend/ops/counting_ops.h"
#include "planning/bench/measured_machine.h"

namespace megatron {

namespace {

// Numbers of tokens, and of features: libraries cut these into blocks, so that neighbours may differ by a fifth.
constexpr std::int64_t kTokens[] = {16, 64, 128, 256, 1024};
constexpr std::int64_t kFeatures[] = {16, 64, 128, 256, 384, 512, 640, 768, 1024, 2048};
constexpr std::int64_t kQuickSizes[] = {16, 64};
constexpr double kMostMultiplications = 2e9;  // in one product: tens of milliseconds on a core
constexpr double kMeasuredFlops = 4e8;        // at least, in one measurement, whose calls end together on a device
constexpr std::size_t kParameterBytes = 192 << 20;  // for parameters, and for gradients: more than caches hold
constexpr int kSlots = 4;                           // activations take turns
constexpr int kCopyRounds = 5, kProductRounds = 3;

/// Where operands lie. A step finds its activations in caches, as far as they fit, and neither parameters nor their
/// gradients, each of which it has seen last a micro-batch ago: these come from a place further on in each call.
class Operands {
 public:
  Operands(const MeasuredMachine& machine, std::size_t most, std::size_t parameter_bytes)
      : slot_bytes_(most),
        activations_(machine.device(), 2 * kSlots * most),
        parameters_(machine.device(), std::max(most, parameter_bytes)),
        gradients_(machine.device(), std::max(most, parameter_bytes)) {
    for (const Buffer* buffer : {&activations_, &parameters_, &gradients_}) {
      machine.ops().fill(buffer->tensor({static_cast<std::int64_t>(buffer->bytes() / sizeof(float))}, DType::f32),
                         0.01);
    }
  }

  Tensor input(std::int64_t rows, std::int64_t columns, DType type) { return activation(0, rows, columns, type); }
  Tensor output(std::int64_t rows, std::int64_t columns, DType type) { return activation(1, rows, columns, type); }
  Tensor parameter(std::int64_t rows, std::int64_t columns, DType type) {
    return next(parameters_, parameter_at_, rows, columns, type);
  }
  Tensor gradient(std::int64_t rows, std::int64_t columns) {
    return next(gradients_, gradient_at_, rows, columns, DType::f32);
  }
  void take_turns() { slot_ = (slot_ + 1) % kSlots; }

 private:
  static constexpr std::size_t kAlignment = 64;

  Tensor activation(int which, std::int64_t rows, std::int64_t columns, DType type) const {
    const std::size_t at = static_cast<std::size_t>(2 * slot_ + which) * slot_bytes_;
    return {static_cast<std::byte*>(activations_.data()) + at, {rows, columns}, type};
  }
  static Tensor next(const Buffer& memory, std::size_t& at, std::int64_t rows, std::int64_t columns, DType type) {
    const std::size_t bytes = static_cast<std::size_t>(rows * columns) * size_of(type);
    if (at + bytes > memory.bytes()) at = 0;
    const Tensor taken(static_cast<std::byte*>(memory.data()) + at, {rows, columns}, type);
    at += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return taken;
  }

  std::size_t slot_bytes_;
  Buffer activations_, parameters_, gradients_;
  std::size_t parameter_at_ = 0, gradient_at_ = 0;
  int slot_ = 0;
};

MatmulArgs product(ProductKind kind, Operands& operands, const RateTable<3>::Sizes& sizes, DType type) {
  const auto rows = static_cast<std::int64_t>(sizes[0]), columns = static_cast<std::int64_t>(sizes[1]),
             inner = static_cast<std::int64_t>(sizes[2]);
  operands.take_turns();
  switch (kind) {
    case ProductKind::forward:
      return {.a = operands.input(rows, inner, type),
              .b = operands.parameter(columns, inner, type),
              .transpose_b = true,
              .c = operands.output(rows, columns, type)};
    case ProductKind::input_gradient:
      return {.a = operands.input(rows, inner, type),
              .b = operands.parameter(inner, columns, type),
              .c = operands.output(rows, columns, type)};
    case ProductKind::weight_gradient: break;
  }
  return {.a = operands.input(inner, rows, type),
          .b = operands.output(inner, columns, type),
          .transpose_a = true,
          .c = operands.gradient(rows, columns),
          .accumulate = true};
}

/// Rows are tokens, of weights' gradients the inner dimension.
std::vector<RateTable<3>::Sizes> shapes_of(ProductKind kind, bool quick) {
  const auto tokens = quick ? std::span<const std::int64_t>(kQuickSizes) : std::span<const std::int64_t>(kTokens);
  const auto features = quick ? std::span<const std::int64_t>(kQuickSizes) : std::span<const std::int64_t>(kFeatures);
  std::vector<RateTable<3>::Sizes> shapes;
  for (const std::int64_t token : tokens) {
    for (const std::int64_t first : features) {
      for (const std::int64_t second : features) {
        const auto t = static_cast<double>(token), f = static_cast<double>(first), g = static_cast<double>(second);
        if (t * f * g > kMostMultiplications) continue;
        if (kind == ProductKind::weight_gradient) shapes.push_back({f, g, t});
        if (kind != ProductKind::weight_gradient) shapes.push_back({t, f, g});
      }
    }
  }
  return shapes;
}

}  // namespace

void measure_products(const MeasuredMachine& machine, DType type, MeasuredRates& rates) {
  const bool quick = machine.settings.quick;
  const auto largest =
      static_cast<std::size_t>(quick ? kQuickSizes[std::size(kQuickSizes) - 1] : kFeatures[std::size(kFeatures) - 1]);
  Operands operands(machine, largest * largest * sizeof(float), quick ? 0 : kParameterBytes);
  for (std::size_t i = 0; i < kProductKinds; ++i) {
    const auto kind = static_cast<ProductKind>(i);
    const std::vector<RateTable<3>::Sizes> shapes = shapes_of(kind, quick);
    std::vector<double> found(shapes.size());
    std::vector<double*> numbers;
    for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
      const double flops = 2 * shapes[shape][0] * shapes[shape][1] * shapes[shape][2];
      const bool waits = machine.device().is_host_memory();
      const int calls = waits ? 1 : std::clamp(static_cast<int>(kMeasuredFlops / flops), 1, 100);
      found[shape] = machine.seconds(kProductRounds, calls,
                                     [&](int) { machine.ops().matmul(product(kind, operands, shapes[shape], type)); });
      numbers.push_back(&found[shape]);
    }
    machine.average(numbers);
    for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
      rates.products[i].set(shapes[shape], 2 * shapes[shape][0] * shapes[shape][1] * shapes[shape][2] / found[shape]);
    }
  }
}

namespace {

/// Attention of one sample, for one length and head size.
struct AttentionCase {
  std::int64_t length, head_size, heads;
  Buffer q, k, v, out, sums, dout, dq, dk, dv, positions;

  AttentionCase(const MeasuredMachine& machine, DType type, std::int64_t length_, std::int64_t head_size_)
      : length(length_), head_size(head_size_), heads(std::max<std::int64_t>(1, 2048 / length_)) {
    for (Buffer* buffer : {&q, &k, &v, &out, &dout, &dq, &dk, &dv}) {
      *buffer = Buffer(machine.device(), static_cast<std::size_t>(length * heads * head_size) * size_of(type));
      machine.ops().fill(of(*buffer, type), 0.01);
    }
    sums = Buffer(machine.device(), static_cast<std::size_t>(length * heads) * sizeof(float));
    positions = Buffer(machine.device(), static_cast<std::size_t>(length) * sizeof(std::int32_t));
    machine.ops().fill(rows(), 1);
  }
  Tensor of(const Buffer& buffer, DType type) const { return buffer.tensor({length, 1, heads, head_size}, type); }
  Tensor rows() const { return positions.tensor({length}, DType::i32); }
  Tensor statistics() const { return sums.tensor({1, heads, length}, DType::f32); }
};

}  // namespace

void measure_attention(const MeasuredMachine& machine, DType type, MeasuredRates& rates) {
  std::vector<std::int64_t> lengths = {64, 128, 256, 512, 1024}, head_sizes = {32, 64, 128};
  if (machine.settings.quick) lengths = head_sizes = {32};
  for (const std::int64_t length : lengths) {
    for (const std::int64_t head_size : head_sizes) {
      const AttentionCase each(machine, type, length, head_size);
      const auto forward = [&](float probability) {
        machine.ops().attention_forward({.q = each.of(each.q, type),
                                         .k = each.of(each.k, type),
                                         .v = each.of(each.v, type),
                                         .out = each.of(each.out, type),
                                         .log_sum_exp = each.statistics(),
                                         .mask = {},
                                         .dropout = {.probability = probability, .positions = each.rows()}});
      };
      const auto backward = [&](float probability) {
        machine.ops().attention_backward({.dout = each.of(each.dout, type),
                                          .q = each.of(each.q, type),
                                          .k = each.of(each.k, type),
                                          .v = each.of(each.v, type),
                                          .out = each.of(each.out, type),
                                          .log_sum_exp = each.statistics(),
                                          .dq = each.of(each.dq, type),
                                          .dk = each.of(each.dk, type),
                                          .dv = each.of(each.dv, type),
                                          .mask = {},
                                          .dropout = {.probability = probability, .positions = each.rows()}});
      };
      // For each kind (AttentionKind): whether it is the backward pass, and the dropout probability.
      const std::pair<bool, float> kinds[kAttentionKinds] = {{false, 0}, {true, 0}, {false, 0.1f}, {true, 0.1f}};
      const double flops = 2 * static_cast<double>(each.heads * head_size) * visible_pairs(length, length, 0, true, 0);
      for (std::size_t kind = 0; kind < kAttentionKinds; ++kind) {
        const auto [back, probability] = kinds[kind];
        double seconds =
            machine.seconds(kCopyRounds, 1, [&](int) { back ? backward(probability) : forward(probability); });
        machine.average({&seconds});
        rates.attention[kind].set({static_cast<double>(length), static_cast<double>(head_size)},
                                  (back ? 5 : 2) * flops / seconds);
      }
    }
  }
}

double measure_memory(const MeasuredMachine& machine) {
  const std::size_t bytes = machine.settings.quick ? 1 << 20 : 256 << 20;
  const Buffer from(machine.device(), bytes), to(machine.device(), bytes);
  const Shape shape = {static_cast<std::int64_t>(bytes / sizeof(float))};
  machine.ops().fill(from.tensor(shape, DType::f32), 1);
  double seconds = machine.seconds(
      kCopyRounds, 1, [&](int) { machine.ops().copy(from.tensor(shape, DType::f32), to.tensor(shape, DType::f32)); });
  machine.average({&seconds});
  return 2.0 * static_cast<double>(bytes) / seconds;
}

}  // namespace megatron
