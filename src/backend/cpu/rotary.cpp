#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/vector_math.h"
#include "backend/ops/rotary_shape.h"

namespace megatron {

namespace {

/// Pairs whose sines and cosines are made at a time and serve all heads of a row: those of heads of 128 channels.
constexpr std::int64_t kPairs = 64;

struct Angles {
  float sines[kPairs], cosines[kPairs];

  void set(const std::uint64_t* turns, std::int32_t position, bool inverse, std::int64_t pairs) {
    const float sign = inverse ? -1.0f : 1.0f;
#pragma omp simd
    for (std::int64_t i = 0; i < pairs; ++i) {
      const SineCosine angle = vector_sine_cosine(turn_at(turns[i], position));
      sines[i] = sign * angle.sine;
      cosines[i] = angle.cosine;
    }
  }
};

template <class T>
void turn(const Angles& angles, T* x, T* y, std::int64_t pairs) {
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float first = wide(x[i]), second = wide(y[i]), sine = angles.sines[i], cosine = angles.cosines[i];
    x[i] = narrow<T>(first * cosine - second * sine);
    y[i] = narrow<T>(second * cosine + first * sine);
  }
}

template <class T>
void turn_heads(const ThreadTeam& team, const RotaryArgs& args) {
  const RotaryShape shape(args);
  const StridedRows<T> x = rows_of<T>("rotary", args.x, RowsOf(args.x));
  team.ranges(shape.tokens, 1, shape.tokens * shape.heads * shape.pairs * 2,
              [&](std::int64_t first, std::int64_t last) {
                std::uint64_t turns[kPairs];
                Angles angles;
                for (std::int64_t pair = 0; pair < shape.pairs; pair += kPairs) {
                  const std::int64_t pairs = std::min(kPairs, shape.pairs - pair);
                  for (std::int64_t i = 0; i < pairs; ++i) turns[i] = turns_a_position(shape.frequencies[pair + i]);
                  for (std::int64_t token = first; token < last; ++token) {
                    angles.set(turns, shape.positions[token], args.inverse, pairs);
                    for (std::int64_t head = 0; head < shape.heads; ++head) {
                      T* channels = x[token * shape.heads + head] + pair;
                      turn(angles, channels, channels + shape.pairs, pairs);
                    }
                  }
                }
              });
}

}  // namespace

void CpuOps::rotary(const RotaryArgs& args) {
  with_activation_type("rotary", args.x.dtype(), [&]<class T>(T) { turn_heads<T>(team_, args); });
}

}  // namespace megatron
