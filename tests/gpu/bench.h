// Tools of the benchmark of operations: tensors of random values, and the line of an operation, timed by the GPU's own
// clock, with its shares of this GPU's ceilings. Owns the backend and the tensors' memory.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include "backend/ops/backends.h"
#include "backend/ops/ops.h"
#include "cuda/cuda_check.h"
#include "cuda/cuda_device.h"

namespace megatron {

class Bench {
 public:
  explicit Bench(bool tiny)
      : backend_(make_cuda_backend(0)), device_(dynamic_cast<CudaDevice&>(*backend_.device)), tiny_(tiny) {
    CUDA_CHECK(cudaEventCreate(&begin_));
    CUDA_CHECK(cudaEventCreate(&end_));
  }
  ~Bench() {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Ops& ops() { return *backend_.ops; }
  CudaDevice& device() { return device_; }

  /// Random values of deviation 1 until release().
  Tensor random(Shape shape, DType type = DType::bf16) {
    const Tensor values = tensor(shape, type);
    Buffer wide(device_, static_cast<std::size_t>(values.elements()) * sizeof(float));
    const Tensor normal = wide.tensor({values.elements()}, DType::f32);
    ops().normal({.y = wide.tensor({1, values.elements()}, DType::f32),
                  .key = ++key_,
                  .deviation = 1,
                  .global_columns = values.elements()});
    ops().copy(normal, values.view({values.elements()}));
    return values;
  }
  Tensor zeros(Shape shape, DType type = DType::f32) {
    const Tensor values = tensor(shape, type);
    ops().fill(values, 0);
    return values;
  }
  Tensor tokens(std::int64_t count, std::int64_t vocabulary) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(i * 7919 % vocabulary));
    const Tensor values = tensor({count}, DType::i32);
    device_.copy_to_device(values.data(), ids.data(), values.bytes());
    return values;
  }
  Tensor counting(std::int64_t count) {
    return tokens_of([](std::int64_t i) { return i; }, count);
  }
  /// [b, s], where each token's document begins if all are of this length.
  Tensor document_starts(std::int64_t b, std::int64_t s, std::int64_t length) {
    return tokens_of([=](std::int64_t i) { return i % s / length * length; }, b * s).view({b, s});
  }
  void release() {
    device_.synchronize();
    memory_.clear();
  }

  /// The line of one operation that moves `bytes` at least and does `flops`.
  void measure(const std::string& what, double bytes, double flops, const std::function<void()>& call) {
    const double seconds = time_of(call);
    std::string line = fmt::format("  {:<42}{:>10.1f} us", what, seconds * 1e6);
    if (bytes > 0)
      line += fmt::format("{:>9.0f} GB/s {:>4.0f} %", bytes / seconds / 1e9, 100 * bytes / seconds / copy_);
    if (bytes == 0) line += std::string(20, ' ');
    if (flops > 0) {
      line += fmt::format("{:>9.1f} TFLOP/s {:>4.0f} %", flops / seconds / 1e12, 100 * flops / seconds / products_);
    }
    std::puts(line.c_str());
    std::fflush(stdout);
  }

  void measure_ceilings() {
    const std::int64_t bytes = tiny_ ? 1 << 16 : std::int64_t{1} << 31, n = tiny_ ? 64 : 8192;
    {
      const Tensor from = zeros({bytes}, DType::u8), to = zeros({bytes}, DType::u8);
      copy_ = 2.0 * static_cast<double>(bytes) /
              time_of([&] { device_.copy_within(to.data(), from.data(), from.bytes()); });
    }
    release();
    const Tensor a = random({n, n}), b = random({n, n}), c = zeros({n, n}, DType::bf16);
    products_ = 2.0 * std::pow(static_cast<double>(n), 3) / time_of([&] { ops().matmul({.a = a, .b = b, .c = c}); });
    release();
    fmt::print(
        "{}; {} multiprocessors\nceilings measured here: copy {:.0f} GB/s read and written, bf16 product of "
        "{} x {} matrices {:.1f} TFLOP/s\n",
        device_.description(), device_.multiprocessors(), copy_ / 1e9, n, n, products_ / 1e12);
  }

 private:
  Tensor tensor(Shape shape, DType type) {
    const auto elements = static_cast<std::size_t>(shape.elements());
    memory_.emplace_back(device_, elements * size_of(type));
    return memory_.back().tensor(shape, type);
  }
  Tensor tokens_of(const std::function<std::int64_t(std::int64_t)>& value, std::int64_t count) {
    std::vector<std::int32_t> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<std::int32_t>(value(i)));
    const Tensor result = tensor({count}, DType::i32);
    device_.copy_to_device(result.data(), values.data(), result.bytes());
    return result;
  }

  /// `calls` one after another, by the events around them.
  double seconds_of(int calls, const std::function<void()>& call) {
    CUDA_CHECK(cudaEventRecord(begin_, device_.compute_stream()));
    for (int i = 0; i < calls; ++i) call();
    CUDA_CHECK(cudaEventRecord(end_, device_.compute_stream()));
    CUDA_CHECK(cudaEventSynchronize(end_));
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds * 1e-3;
  }

  /// The median of samples of at least about 3 ms, so that launches and the clock's steps do not count.
  double time_of(const std::function<void()>& call) {
    seconds_of(tiny_ ? 1 : 3, call);
    const double once = std::max(seconds_of(1, call), 1e-7);
    const int calls = tiny_ ? 1 : std::clamp(static_cast<int>(3e-3 / once), 1, 200), samples = tiny_ ? 3 : 11;
    std::vector<double> seconds;
    for (int i = 0; i < samples; ++i) seconds.push_back(seconds_of(calls, call) / calls);
    std::nth_element(seconds.begin(), seconds.begin() + samples / 2, seconds.end());
    return std::max(seconds[static_cast<std::size_t>(samples / 2)], 1e-9);
  }

  Backend backend_;
  CudaDevice& device_;
  bool tiny_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<Buffer> memory_;
  std::uint64_t key_ = 0;
  double copy_ = 1, products_ = 1;  // bytes and operations a second
};

}  // namespace megatron
