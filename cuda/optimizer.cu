#include <cmath>

#include "backend/ops/arguments.h"
#include "cuda/cuda_ops.h"
#include "cuda/kernel.cuh"
#include "cuda/philox.cuh"
#include "cuda/sums.cuh"

namespace megatron {

namespace {

/// Elements that a kernel takes at once: 16 bytes of T. Eight of bf16 have their draws from one call of Philox.
template <class T>
constexpr int kStateWidth = Vector<T>::size;

/// Keeps new states of the elements from place `at` of the update on. `which`: of the keys of their draws.
template <int width>
__device__ __forceinline__ void store_state(float* to, const Vector<float, width>& state, const StateDraws&, int,
                                            std::int64_t) {
  store_global(to, state);
}
/// Eight elements, if they are of one row and have one call of Philox, or one.
template <int width>
__device__ __forceinline__ void store_state(BFloat16* to, const Vector<float, width>& state, const StateDraws& draws,
                                            int which, std::int64_t at) {
  const std::int64_t row = (draws.first + at) / draws.columns;
  const std::int64_t column = draws.first_column + draws.first + at - row * draws.columns;
  const uint4 words =
      philox_words({static_cast<std::uint32_t>(column / 8), static_cast<std::uint32_t>(draws.first_row + row), 0, 0},
                   draws.keys[which]);
  const unsigned first_lane = width == 8 ? 0 : static_cast<unsigned>(column % 8);
  Vector<BFloat16, width> rounded;
  for (unsigned i = 0; i < width; ++i) {
    rounded.values[i] = draw_bfloat16(state.values[i], static_cast<std::uint32_t>(draw_of(words, first_lane + i)));
  }
  store_global(to, rounded);
}

/// Numbers that all elements of an update have in common.
struct AdamWUpdate {
  float beta1, beta2, m_correction, v_correction, learning_rate, epsilon, weight_decay;

  __device__ __forceinline__ void apply(float gradient, float& m, float& v, float& value) const {
    m = beta1 * m + (1.0f - beta1) * gradient;
    v = beta2 * v + (1.0f - beta2) * gradient * gradient;
    const float direction = m * m_correction / (sqrtf(v) * v_correction + epsilon);
    value -= learning_rate * (direction + weight_decay * value);
  }
};

/// One pass: 28 bytes per element, 20 with states in bf16.
template <int widest, class T>
__global__ void __launch_bounds__(kBlockThreads)
    adamw_kernel(AdamWUpdate update, const float* clip_factor, const float* skip, const float* gradient, T* m, T* v,
                 StateDraws draws, float* value, std::int64_t n) {
  if (*skip != 0) return;
  const float factor = *clip_factor;
  for_each_vector<widest>(n, [&]<int width>(std::int64_t at, Width<width>) {
    const auto gradients = load_vector<width>(gradient + at);
    auto new_m = load_floats<width>(m + at), new_v = load_floats<width>(v + at);
    auto new_value = load_vector<width>(value + at);
    for (int i = 0; i < width; ++i) {
      update.apply(gradients.values[i] * factor, new_m.values[i], new_v.values[i], new_value.values[i]);
    }
    store_state(m + at, new_m, draws, 0, at);
    store_state(v + at, new_v, draws, 1, at);
    store_global(value + at, new_value);
  });
}

struct SgdUpdate {
  float learning_rate, momentum, weight_decay;
};

/// m may be null.
template <int widest, class T>
__global__ void __launch_bounds__(kBlockThreads)
    sgd_kernel(SgdUpdate update, const float* clip_factor, const float* skip, const float* gradient, T* m,
               StateDraws draws, float* value, std::int64_t n) {
  if (*skip != 0) return;
  const float factor = *clip_factor;
  for_each_vector<widest>(n, [&]<int width>(std::int64_t at, Width<width>) {
    const auto gradients = load_vector<width>(gradient + at);
    auto new_value = load_vector<width>(value + at);
    Vector<float, width> new_m{};
    if (m != nullptr) new_m = load_floats<width>(m + at);
    for (int i = 0; i < width; ++i) {
      float& element = new_value.values[i];
      new_m.values[i] =
          update.momentum * new_m.values[i] + (gradients.values[i] * factor + update.weight_decay * element);
      element -= update.learning_rate * new_m.values[i];
    }
    if (m != nullptr) store_state(m + at, new_m, draws, 0, at);
    store_global(value + at, new_value);
  });
}

struct LionUpdate {
  float beta1, beta2, learning_rate, weight_decay;

  __device__ __forceinline__ void apply(float gradient, float& m, float& value) const {
    const float mean = beta1 * m + (1.0f - beta1) * gradient;
    const float direction = static_cast<float>(mean > 0) - static_cast<float>(mean < 0);
    m = beta2 * m + (1.0f - beta2) * gradient;
    value -= learning_rate * (direction + weight_decay * value);
  }
};

/// One pass: 20 bytes per element, 16 with a state in bf16.
template <int widest, class T>
__global__ void __launch_bounds__(kBlockThreads)
    lion_kernel(LionUpdate update, const float* clip_factor, const float* skip, const float* gradient, T* m,
                StateDraws draws, float* value, std::int64_t n) {
  if (*skip != 0) return;
  const float factor = *clip_factor;
  for_each_vector<widest>(n, [&]<int width>(std::int64_t at, Width<width>) {
    const auto gradients = load_vector<width>(gradient + at);
    auto new_m = load_floats<width>(m + at);
    auto new_value = load_vector<width>(value + at);
    for (int i = 0; i < width; ++i) {
      update.apply(gradients.values[i] * factor, new_m.values[i], new_value.values[i]);
    }
    store_state(m + at, new_m, draws, 0, at);
    store_global(value + at, new_value);
  });
}

/// partial[gridDim.x]: sums of squares.
template <int widest>
__global__ void __launch_bounds__(kBlockThreads) square_sum_kernel(const float* x, double* partial, std::int64_t n) {
  __shared__ double partial_sum[kWarpThreads];
  double sum = 0;
  for_each_vector<widest>(n, [&]<int width>(std::int64_t at, Width<width>) {
    const auto elements = load_vector<width>(x + at);
    for (int i = 0; i < width; ++i) {
      const auto element = static_cast<double>(elements.values[i]);
      sum += element * element;
    }
  });
  sum = block_sum(sum, partial_sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

template <int widest>
__global__ void __launch_bounds__(kBlockThreads)
    divide_by_norm_kernel(float* x, const double* square_sum, double epsilon, std::int64_t n) {
  const auto factor = static_cast<float>(1 / (sqrt(*square_sum) + epsilon));
  for_each_vector<widest>(n, [&]<int width>(std::int64_t at, Width<width>) {
    auto elements = load_vector<width>(x + at);
    for (int i = 0; i < width; ++i) elements.values[i] *= factor;
    store_global(x + at, elements);
  });
}

struct StepSquares {
  const double *one_copy, *all, *uncounted;
};
struct StepJudgement {
  float *norm, *factor, *skip, *bad_loss;
};

__global__ void judge_step_kernel(StepSquares squares, const double* losses, std::int64_t terms, double maximum,
                                  double loss_scale, StepJudgement judgement) {
  const double norm = sqrt(*squares.one_copy) / loss_scale;
  const double factor = maximum / (norm + 1e-6);
  const double clip = maximum != 0 && factor < 1 ? factor : 1.0;
  const auto all_norm = static_cast<float>(sqrt(*squares.all) / loss_scale);
  bool bad_loss = false;
  for (std::int64_t i = 0; i < terms; ++i) bad_loss = bad_loss || !std::isfinite(losses[i]);
  const bool skip = bad_loss || !std::isfinite(all_norm) || !std::isfinite(*squares.uncounted);
  *judgement.norm = static_cast<float>(norm);
  *judgement.factor = static_cast<float>(clip / loss_scale);
  *judgement.skip = skip ? 1.0f : 0.0f;
  *judgement.bad_loss = bad_loss ? 1.0f : 0.0f;
}

/// Calls run(a zero of the type of these states, whether their draws are made eight at a time).
template <class Run>
void with_state_type(const char* verb, const ConstTensor& state, const StateDraws& draws, const Run& run) {
  if (!rounds_state(verb, state, draws)) return run(float{}, true);
  run(BFloat16{}, draws.columns % 8 == 0 && draws.first % 8 == 0 && draws.first_column % 8 == 0);
}

}  // namespace

void CudaOps::adamw(const AdamWArgs& args) {
  const std::int64_t n = args.value.elements();
  float* value = elements_of<float>("adamw", args.value, n);
  const float* gradient = elements_of<float>("adamw", args.gradient, n);
  const float* clip_factor = elements_of<float>("adamw", args.clip_factor, 1);
  const float* skip = elements_of<float>("adamw", args.skip, 1);
  internal_check(args.step >= 1, "adamw: updates are counted from 1", args.step);
  if (n == 0) return;
  // Bias corrections in double: 1 - beta^step cancels at small steps.
  const double step = static_cast<double>(args.step);
  const double m_share = 1.0 - std::pow(static_cast<double>(args.beta1), step);
  const double v_share = 1.0 - std::pow(static_cast<double>(args.beta2), step);
  const AdamWUpdate update{.beta1 = args.beta1,
                           .beta2 = args.beta2,
                           .m_correction = static_cast<float>(1.0 / m_share),
                           .v_correction = static_cast<float>(1.0 / std::sqrt(v_share)),
                           .learning_rate = args.learning_rate,
                           .epsilon = args.epsilon,
                           .weight_decay = args.weight_decay};
  with_state_type("adamw", args.m, args.draws, [&]<class T>(T, bool whole_draws) {
    T* m = elements_of<T>("adamw", args.m, n);
    T* v = elements_of<T>("adamw", args.v, n);
    constexpr int width = kStateWidth<T>;
    const bool vectors = whole_draws && aligned(value, gradient, m, v);
    launch(stream_, elementwise_shape(n, vectors ? width : 1), vectors ? adamw_kernel<width, T> : adamw_kernel<1, T>,
           update, clip_factor, skip, gradient, m, v, args.draws, value, n);
  });
}

void CudaOps::sgd(const SgdArgs& args) {
  const std::int64_t n = args.value.elements();
  float* value = elements_of<float>("sgd", args.value, n);
  const float* gradient = elements_of<float>("sgd", args.gradient, n);
  const float* clip_factor = elements_of<float>("sgd", args.clip_factor, 1);
  const float* skip = elements_of<float>("sgd", args.skip, 1);
  if (n == 0) return;
  const SgdUpdate update{
      .learning_rate = args.learning_rate, .momentum = args.momentum, .weight_decay = args.weight_decay};
  with_state_type("sgd", args.m, args.draws, [&]<class T>(T, bool whole_draws) {
    T* m = optional_elements_of<T>("sgd", args.m, n);
    constexpr int width = kStateWidth<T>;
    const bool vectors = whole_draws && aligned(value, gradient, m);
    launch(stream_, elementwise_shape(n, vectors ? width : 1), vectors ? sgd_kernel<width, T> : sgd_kernel<1, T>,
           update, clip_factor, skip, gradient, m, args.draws, value, n);
  });
}

void CudaOps::lion(const LionArgs& args) {
  const std::int64_t n = args.value.elements();
  float* value = elements_of<float>("lion", args.value, n);
  const float* gradient = elements_of<float>("lion", args.gradient, n);
  const float* clip_factor = elements_of<float>("lion", args.clip_factor, 1);
  const float* skip = elements_of<float>("lion", args.skip, 1);
  if (n == 0) return;
  const LionUpdate update{
      .beta1 = args.beta1, .beta2 = args.beta2, .learning_rate = args.learning_rate, .weight_decay = args.weight_decay};
  with_state_type("lion", args.m, args.draws, [&]<class T>(T, bool whole_draws) {
    T* m = elements_of<T>("lion", args.m, n);
    constexpr int width = kStateWidth<T>;
    const bool vectors = whole_draws && aligned(value, gradient, m);
    launch(stream_, elementwise_shape(n, vectors ? width : 1), vectors ? lion_kernel<width, T> : lion_kernel<1, T>,
           update, clip_factor, skip, gradient, m, args.draws, value, n);
  });
}

void CudaOps::square_sum(const SquareSumArgs& args) {
  const std::int64_t n = args.x.elements();
  const float* x = elements_of<float>("square_sum", args.x, n);
  double* total = f64_scalar("square_sum", args.total);
  if (n == 0) return;
  const bool vectors = aligned(x);
  const LaunchShape shape = elementwise_shape(n, vectors ? 4 : 1);
  auto* partial = reinterpret_cast<double*>(scratch(shape.grid.x * sizeof(double)));
  launch(stream_, shape, vectors ? square_sum_kernel<4> : square_sum_kernel<1>, x, partial, n);
  add_partial_sums(stream_, partial, shape.grid.x, total);
}

void CudaOps::divide_by_norm(const DivideByNormArgs& args) {
  const std::int64_t n = args.x.elements();
  float* x = elements_of<float>("divide_by_norm", args.x, n);
  const double* square_sum = elements_of<double>("divide_by_norm", args.square_sum, 1);
  if (n == 0) return;
  const bool vectors = aligned(x);
  launch(stream_, elementwise_shape(n, vectors ? 4 : 1), vectors ? divide_by_norm_kernel<4> : divide_by_norm_kernel<1>,
         x, square_sum, static_cast<double>(args.epsilon), n);
}

void CudaOps::judge_step(const JudgeStepArgs& args) {
  internal_check(args.loss_scale > 0, "judge_step: a loss scale that is not positive", args.loss_scale);
  const StepSquares squares{.one_copy = elements_of<double>("judge_step", args.square_sum, 1),
                            .all = elements_of<double>("judge_step", args.all_square_sum, 1),
                            .uncounted = elements_of<double>("judge_step", args.uncounted_square_sum, 1)};
  const StepJudgement judgement{.norm = elements_of<float>("judge_step", args.norm, 1),
                                .factor = elements_of<float>("judge_step", args.factor, 1),
                                .skip = elements_of<float>("judge_step", args.skip, 1),
                                .bad_loss = elements_of<float>("judge_step", args.bad_loss, 1)};
  const std::int64_t terms = args.losses.elements();
  launch(stream_, {.grid = dim3(1), .block = dim3(1)}, judge_step_kernel, squares,
         optional_elements_of<double>("judge_step", args.losses, terms), terms, static_cast<double>(args.maximum),
         args.loss_scale, judgement);
}

}  // namespace megatron
