#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/vector_math.h"
#include "backend/ops/expert_routing_shape.h"

namespace megatron {

namespace {

/// Sorts the row's best experts into `chosen`, one expert after the other. Returns the best one that is left.
RankedExpert choose_experts(const RouteForwardShape& at, const float* probabilities, std::int32_t* chosen) {
  const auto ranked = [&](std::int64_t expert) { return at.ranked(probabilities[expert], expert); };
  RankedExpert left = RankedExpert::last(), worst = left;
  for (std::int64_t expert = 0, count = 0; expert < at.experts; ++expert) {
    const RankedExpert candidate = ranked(expert);
    if (count == at.top_k) {
      const bool better = candidate.before(worst);
      const RankedExpert& loser = better ? worst : candidate;
      if (loser.before(left)) left = loser;
      if (!better) continue;
    }
    std::int64_t j = count < at.top_k ? count++ : count - 1;
    for (; j > 0 && candidate.before(ranked(chosen[j - 1])); --j) chosen[j] = chosen[j - 1];
    chosen[j] = candidate.expert;
    worst = ranked(chosen[count - 1]);
  }
  return left;
}

void choose(const RouteForwardShape& at, std::int64_t row) {
  const float* probabilities = at.probabilities + row * at.experts;
  std::int32_t* chosen = at.chosen + row * at.top_k;
  float *gates = at.gates + row * at.top_k, sum = 0;
  const RankedExpert left = choose_experts(at, probabilities, chosen);
  for (std::int64_t j = 0; j < at.top_k; ++j) {
    gates[j] = probabilities[chosen[j]];
    sum += gates[j];
  }
  if (at.renormalize) {
    const float divisor = sum < kLeastGateSum ? kLeastGateSum : sum;
    for (std::int64_t j = 0; j < at.top_k; ++j) gates[j] /= divisor;
  }
  if (at.gaps == nullptr) return;
  const std::int32_t last = chosen[at.top_k - 1];
  at.gaps[row] = at.top_k == at.experts ? std::numeric_limits<float>::infinity()
                                        : at.ranked(probabilities[last], last).score - left.score;
}

void route_row(const RouteForwardShape& at, std::int64_t row) {
  const float* logits = at.logits + row * at.experts;
  float *probabilities = at.probabilities + row * at.experts, sum = 0;
  float maximum = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : maximum)
  for (std::int64_t i = 0; i < at.experts; ++i) maximum = logits[i] > maximum ? logits[i] : maximum;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < at.experts; ++i) {
    probabilities[i] = vector_exp(logits[i] - maximum);
    sum += probabilities[i];
  }
  at.log_sums[row] = maximum + std::log(sum);
  const float reciprocal = 1 / sum;
#pragma omp simd
  for (std::int64_t i = 0; i < at.experts; ++i) probabilities[i] *= reciprocal;
  choose(at, row);
}

struct LossSums {
  double balance = 0, z = 0;
};

void add_row_losses(const RouteLossesShape& at, std::int64_t row, LossSums& sums) {
  if (at.counts != nullptr) {
    const float* probabilities = at.probabilities + row * at.experts;
    const std::int32_t* counts = at.counts + row % at.samples * at.experts;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < at.experts; ++i) sum += static_cast<double>(probabilities[i]) * counts[i];
    sums.balance += sum;
  }
  if (at.log_sums != nullptr) {
    const auto log_sum = static_cast<double>(at.log_sums[row]);
    sums.z += log_sum * log_sum;
  }
}

/// The divisor that the gates were made with, and the sum of gate · dgate over the row's choices. From the gates as
/// forward made them: the one gate of a row, if renormalized, has a gradient of exactly 0.
struct ChosenGates {
  float divisor = 1, product = 0;

  ChosenGates(const RouteBackwardShape& at, const float* probabilities, const std::int32_t* chosen,
              const float* dgates) {
    float sum = 0;
    for (std::int64_t j = 0; j < at.top_k; ++j) sum += at.is_expert(chosen[j]) ? probabilities[chosen[j]] : 0.0f;
    if (at.renormalize) divisor = sum < kLeastGateSum ? kLeastGateSum : sum;
    for (std::int64_t j = 0; j < at.top_k; ++j) {
      if (at.is_expert(chosen[j])) product += probabilities[chosen[j]] / divisor * dgates[j];
    }
  }
};

/// Gates that add up to 1 depend on the chosen logits alone: their gradient is that of a softmax over these.
void differentiate_row(const RouteBackwardShape& at, std::int64_t row) {
  const float* probabilities = at.probabilities + row * at.experts;
  const std::int32_t* chosen = at.chosen + row * at.top_k;
  const float* dgates = at.dgates + row * at.top_k;
  float* dlogits = at.dlogits + row * at.experts;
  const ChosenGates gates(at, probabilities, chosen, dgates);
  float common = at.log_sums == nullptr ? 0.0f : at.z_scale * at.log_sums[row];
  if (!at.renormalize) common -= gates.product;
  if (at.counts == nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < at.experts; ++i) dlogits[i] = probabilities[i] * common;
  } else {
    const std::int32_t* counts = at.counts + row % at.samples * at.experts;
    float mean = 0;
#pragma omp simd reduction(+ : mean)
    for (std::int64_t i = 0; i < at.experts; ++i) mean += probabilities[i] * static_cast<float>(counts[i]);
#pragma omp simd
    for (std::int64_t i = 0; i < at.experts; ++i) {
      dlogits[i] = probabilities[i] * (at.balance_scale * (static_cast<float>(counts[i]) - mean) + common);
    }
  }
  const float subtracted = at.renormalize ? gates.product : 0.0f;
  for (std::int64_t j = 0; j < at.top_k; ++j) {
    if (!at.is_expert(chosen[j])) continue;
    dlogits[chosen[j]] += probabilities[chosen[j]] / gates.divisor * (dgates[j] - subtracted);
  }
}

}  // namespace

void CpuOps::route_forward(const RouteForwardArgs& args) {
  const RouteForwardShape at(args);
  team_.rows(at.rows, at.experts * at.top_k, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) route_row(at, row);
  });
}

void CpuOps::route_losses(const RouteLossesArgs& args) {
  const RouteLossesShape at(args);
  // Blocks that the number of rows alone decides on, added up in order: the same sums with any number of threads.
  constexpr std::int64_t most_blocks = 256, least_block = 64;
  const std::int64_t block = std::max(least_block, (at.rows + most_blocks - 1) / most_blocks);
  const std::int64_t blocks = (at.rows + block - 1) / block;
  LossSums sums[most_blocks];
  team_.ranges(blocks, 1, at.rows * at.experts, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t end = std::min((i + 1) * block, at.rows);
      for (std::int64_t row = i * block; row < end; ++row) add_row_losses(at, row, sums[i]);
    }
  });
  LossSums total;
  for (std::int64_t i = 0; i < blocks; ++i) {
    total.balance += sums[i].balance;
    total.z += sums[i].z;
  }
  if (at.balance != nullptr) *at.balance += total.balance * at.balance_factor;
  if (at.z != nullptr) *at.z += total.z * at.z_factor;
}

void CpuOps::route_backward(const RouteBackwardArgs& args) {
  const RouteBackwardShape at(args);
  team_.rows(at.rows, at.experts, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) differentiate_row(at, row);
  });
}

}  // namespace megatron
