#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/dropout.h"
#include "backend/ops/arguments.h"

namespace megatron {

namespace {

/// Values that all elements of an update have in common.
struct AdamWUpdate {
  float factor, beta1, beta2, m_correction, v_correction, learning_rate, epsilon, weight_decay;
};

/// Not inline: GCC 12 does not vectorise the loop inside its caller, which is four times slower than memory.
[[gnu::noinline]] void update_elements(const AdamWUpdate& update, const float* gradient, float* m, float* v,
                                       float* value, std::int64_t n) {
  // Plain names, not a structured binding: Clang before 16 takes none of those into an OpenMP region.
  const float factor = update.factor, beta1 = update.beta1, beta2 = update.beta2, epsilon = update.epsilon;
  const float m_correction = update.m_correction, v_correction = update.v_correction;
  const float learning_rate = update.learning_rate, decay = update.weight_decay;
  const float new1 = 1.0f - beta1, new2 = 1.0f - beta2;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * factor;
    const float m_new = beta1 * m[i] + new1 * g;
    const float v_new = beta2 * v[i] + new2 * g * g;
    const float direction = m_new * m_correction / (std::sqrt(v_new) * v_correction + epsilon);
    m[i] = m_new;
    v[i] = v_new;
    value[i] -= learning_rate * (direction + decay * value[i]);
  }
}

/// m may be absent.
[[gnu::noinline]] void descend(const SgdArgs& args, float factor, const float* gradient, float* m, float* value,
                               std::int64_t n) {
  const float rate = args.learning_rate, momentum = args.momentum, decay = args.weight_decay;
  if (m == nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) value[i] -= rate * (gradient[i] * factor + decay * value[i]);
    return;
  }
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    m[i] = momentum * m[i] + (gradient[i] * factor + decay * value[i]);
    value[i] -= rate * m[i];
  }
}

/// -1, 0 or 1; of NaN 0.
float sign_of(float x) {
  return static_cast<float>(x > 0) - static_cast<float>(x < 0);
}

[[gnu::noinline]] void step_by_signs(const LionArgs& args, float factor, const float* gradient, float* m, float* value,
                                     std::int64_t n) {
  const float beta1 = args.beta1, beta2 = args.beta2, rate = args.learning_rate, decay = args.weight_decay;
  const float new1 = 1.0f - beta1, new2 = 1.0f - beta2;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * factor;
    const float direction = sign_of(beta1 * m[i] + new1 * g);
    m[i] = beta2 * m[i] + new2 * g;
    value[i] -= rate * (direction + decay * value[i]);
  }
}

/// Explicit lanes rather than the compiler's: the order of additions is part of the promise of equal runs.
double sum_of_squares(const float* x, std::int64_t n) {
  constexpr std::int64_t lanes = 32;
  double sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const auto element = static_cast<double>(x[i + lane]);
      sums[lane] += element * element;
    }
  }
  for (; i < n; ++i) sums[i % lanes] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double sum = 0;
  for (const double lane_sum : sums) sum += lane_sum;
  return sum;
}

[[gnu::noinline]] void widen(const BFloat16* x, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = to_float(x[i]);
}

[[gnu::noinline]] void round_by(const std::uint16_t* draws, const float* x, BFloat16* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = draw_bfloat16(x[i], draws[i]);
}

template <class T, std::size_t states>
using StatePointers = std::array<T*, states>;

/// Elements begin to end of an update whose states are kept in bf16. Its f32 copies of them are no longer than a block
/// of draws, so that they stay in the first cache and memory is read and written once.
template <std::size_t states, class Update>
void update_rounded(const StatePointers<BFloat16, states>& kept, const StateDraws& where, std::int64_t begin,
                    std::int64_t end, const Update& update) {
  alignas(64) float numbers[states][kDropoutBlock];
  alignas(64) std::uint16_t draws[kDropoutBlock];
  StatePointers<float, states> wide;
  for (std::size_t k = 0; k < states; ++k) wide[k] = numbers[k];
  while (begin < end) {
    const std::int64_t row = (where.first + begin) / where.columns, column = (where.first + begin) % where.columns;
    const std::int64_t global = where.first_column + column, skipped = global % kDropoutLanes;
    const std::int64_t count = std::min({end - begin, where.columns - column, kDropoutBlock - skipped});
    for (std::size_t k = 0; k < states; ++k) widen(kept[k] + begin, numbers[k], count);
    update(begin, count, wide);
    for (std::size_t k = 0; k < states; ++k) {
      dropout_draws({.key = where.keys[k], .position = static_cast<std::uint32_t>(where.first_row + row)},
                    static_cast<std::uint32_t>(global / kDropoutLanes), draws);
      round_by(draws + skipped, numbers[k], kept[k] + begin, count);
    }
    begin += count;
  }
}

/// Calls update(first, count, f32 states of these elements, which it changes) for parts of n elements, if the
/// arguments' `skip` is 0. `args`: AdamWArgs and others.
template <std::size_t states, class Args, class Update>
void update_states(const ThreadTeam& team, const char* verb, const Args& args,
                   const std::array<Tensor, states>& tensors, const Update& update) {
  const std::int64_t n = args.value.elements();
  const bool skip = *elements_of<float>(verb, args.skip, 1) != 0;
  if (rounds_state(verb, tensors[0], args.draws)) {
    StatePointers<BFloat16, states> kept;
    for (std::size_t k = 0; k < states; ++k) kept[k] = elements_of<BFloat16>(verb, tensors[k], n);
    if (skip) return;
    team.elements(n, [&](std::int64_t first, std::int64_t last) {
      update_rounded<states>(kept, args.draws, first, last, update);
    });
    return;
  }
  StatePointers<float, states> kept;
  for (std::size_t k = 0; k < states; ++k) kept[k] = elements_of<float>(verb, tensors[k], n);
  if (skip) return;
  team.elements(n, [&](std::int64_t first, std::int64_t last) {
    StatePointers<float, states> from = kept;
    for (float*& state : from) state += first;
    update(first, last - first, from);
  });
}

}  // namespace

void CpuOps::adamw(const AdamWArgs& args) {
  const std::int64_t n = args.value.elements();
  float* value = elements_of<float>("adamw", args.value, n);
  const float* gradient = elements_of<float>("adamw", args.gradient, n);
  internal_check(args.step >= 1, "adamw: updates are counted from 1", args.step);

  // Bias corrections in double: 1 - beta^step cancels at small steps.
  const double step = static_cast<double>(args.step);
  const double m_share = 1.0 - std::pow(static_cast<double>(args.beta1), step);
  const double v_share = 1.0 - std::pow(static_cast<double>(args.beta2), step);
  const AdamWUpdate update{.factor = *elements_of<float>("adamw", args.clip_factor, 1),
                           .beta1 = args.beta1,
                           .beta2 = args.beta2,
                           .m_correction = static_cast<float>(1.0 / m_share),
                           .v_correction = static_cast<float>(1.0 / std::sqrt(v_share)),
                           .learning_rate = args.learning_rate,
                           .epsilon = args.epsilon,
                           .weight_decay = args.weight_decay};
  update_states<2>(team_, "adamw", args, {args.m, args.v},
                   [&](std::int64_t first, std::int64_t count, const StatePointers<float, 2>& states) {
                     update_elements(update, gradient + first, states[0], states[1], value + first, count);
                   });
}

void CpuOps::sgd(const SgdArgs& args) {
  const std::int64_t n = args.value.elements();
  float* value = elements_of<float>("sgd", args.value, n);
  const float* gradient = elements_of<float>("sgd", args.gradient, n);
  const float factor = *elements_of<float>("sgd", args.clip_factor, 1);
  if (!args.m) {
    if (*elements_of<float>("sgd", args.skip, 1) != 0) return;
    team_.elements(n, [&](std::int64_t first, std::int64_t last) {
      descend(args, factor, gradient + first, nullptr, value + first, last - first);
    });
    return;
  }
  update_states<1>(team_, "sgd", args, {args.m},
                   [&](std::int64_t first, std::int64_t count, const StatePointers<float, 1>& states) {
                     descend(args, factor, gradient + first, states[0], value + first, count);
                   });
}

void CpuOps::lion(const LionArgs& args) {
  const std::int64_t n = args.value.elements();
  float* value = elements_of<float>("lion", args.value, n);
  const float* gradient = elements_of<float>("lion", args.gradient, n);
  const float factor = *elements_of<float>("lion", args.clip_factor, 1);
  update_states<1>(team_, "lion", args, {args.m},
                   [&](std::int64_t first, std::int64_t count, const StatePointers<float, 1>& states) {
                     step_by_signs(args, factor, gradient + first, states[0], value + first, count);
                   });
}

void CpuOps::square_sum(const SquareSumArgs& args) {
  const std::int64_t n = args.x.elements();
  const float* x = elements_of<float>("square_sum", args.x, n);
  // Blocks that n alone decides on, added up in order: the same sum with any number of threads.
  constexpr std::int64_t most_blocks = 256, least_block = std::int64_t{1} << 16;
  const std::int64_t block = std::max(least_block, (n + most_blocks - 1) / most_blocks);
  const std::int64_t blocks = (n + block - 1) / block;
  double sums[most_blocks];
  team_.ranges(blocks, 1, n, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) sums[i] = sum_of_squares(x + i * block, std::min(block, n - i * block));
  });
  double sum = 0;
  for (std::int64_t i = 0; i < blocks; ++i) sum += sums[i];
  *f64_scalar("square_sum", args.total) += sum;
}

void CpuOps::divide_by_norm(const DivideByNormArgs& args) {
  const std::int64_t n = args.x.elements();
  float* x = elements_of<float>("divide_by_norm", args.x, n);
  const double norm = std::sqrt(*elements_of<double>("divide_by_norm", args.square_sum, 1));
  const auto factor = static_cast<float>(1 / (norm + static_cast<double>(args.epsilon)));
  team_.elements(n, [=](std::int64_t first, std::int64_t last) {
#pragma omp simd
    for (std::int64_t i = first; i < last; ++i) x[i] *= factor;
  });
}

void CpuOps::judge_step(const JudgeStepArgs& args) {
  internal_check(args.loss_scale > 0, "judge_step: a loss scale that is not positive", args.loss_scale);
  const std::int64_t terms = args.losses.elements();
  const double* losses = optional_elements_of<double>("judge_step", args.losses, terms);
  const double square_sum = *elements_of<double>("judge_step", args.square_sum, 1);
  const double all_square_sum = *elements_of<double>("judge_step", args.all_square_sum, 1);
  const double uncounted = *elements_of<double>("judge_step", args.uncounted_square_sum, 1);
  const double norm = std::sqrt(square_sum) / args.loss_scale;
  const double factor = static_cast<double>(args.maximum) / (norm + 1e-6);
  const double clip = args.maximum != 0 && factor < 1 ? factor : 1.0;
  const auto all_norm = static_cast<float>(std::sqrt(all_square_sum) / args.loss_scale);
  const bool bad_loss = !std::all_of(losses, losses + terms, [](double loss) { return std::isfinite(loss); });
  const bool skip = bad_loss || !std::isfinite(all_norm) || !std::isfinite(uncounted);
  *elements_of<float>("judge_step", args.norm, 1) = static_cast<float>(norm);
  *elements_of<float>("judge_step", args.factor, 1) = static_cast<float>(clip / args.loss_scale);
  *elements_of<float>("judge_step", args.skip, 1) = skip ? 1.0f : 0.0f;
  *elements_of<float>("judge_step", args.bad_loss, 1) = bad_loss ? 1.0f : 0.0f;
}

}  // namespace megatron
