// Rotary position embedding: a block makes the sines and cosines of a few tokens once, for all their heads.
#include <algorithm>

#include "backend/ops/rotary_shape.h"
#include "cuda/cuda_ops.h"
#include "cuda/kernel.cuh"

namespace megatron {

namespace {

/// Where the heads of tokens lie: element strides of [s, b, heads, d].
struct HeadPlaces {
  std::uint32_t samples;
  std::int64_t sequence, sample, head;

  __device__ std::int64_t operator()(std::uint32_t token, std::uint32_t its_head) const {
    return token / samples * sequence + token % samples * sample + its_head * head;
  }
};

/// [its_tokens, pairs] sines, then as many cosines, in shared memory.
__device__ __forceinline__ void make_angles(const RotaryShape& shape, std::uint32_t first_token,
                                            std::uint32_t its_tokens, bool inverse, float* sines) {
  const auto pairs = static_cast<std::uint32_t>(shape.pairs), count = its_tokens * pairs;
  for (std::uint32_t i = threadIdx.x; i < count; i += kBlockThreads) {
    const std::uint32_t turn =
        turn_at(turns_a_position(shape.frequencies[i % pairs]), shape.positions[first_token + i / pairs]);
    float sine, cosine;
    sincospif(static_cast<float>(static_cast<std::int32_t>(turn)) * 0x1p-31f, &sine, &cosine);
    sines[i] = inverse ? -sine : sine;
    sines[count + i] = cosine;
  }
}

template <class T, int width>
__global__ void __launch_bounds__(kBlockThreads)
    rotary_kernel(T* x, HeadPlaces places, RotaryShape shape, std::uint32_t tokens_a_block, bool inverse) {
  float* sines = dynamic_shared<float>();
  const std::uint32_t first_token = blockIdx.x * tokens_a_block;
  const std::uint32_t tokens = std::min(tokens_a_block, static_cast<std::uint32_t>(shape.tokens) - first_token);
  make_angles(shape, first_token, tokens, inverse, sines);
  __syncthreads();
  const auto pairs = static_cast<std::uint32_t>(shape.pairs), heads = static_cast<std::uint32_t>(shape.heads);
  const std::uint32_t vectors = pairs / width, vectors_a_token = heads * vectors;
  const float* cosines = sines + tokens * pairs;
  for (std::uint32_t i = threadIdx.x; i < tokens * vectors_a_token; i += kBlockThreads) {
    const std::uint32_t token = i / vectors_a_token, in_token = i % vectors_a_token;
    const std::uint32_t head = in_token / vectors, pair = in_token % vectors * width;
    T* at = x + places(first_token + token, head) + pair;
    const auto first = load_floats<width>(at), second = load_floats<width>(at + pairs);
    const auto sine = load_vector<width>(sines + token * pairs + pair),
               cosine = load_vector<width>(cosines + token * pairs + pair);
    Vector<float, width> turned_first, turned_second;
    for (int j = 0; j < width; ++j) {
      turned_first.values[j] = first.values[j] * cosine.values[j] - second.values[j] * sine.values[j];
      turned_second.values[j] = second.values[j] * cosine.values[j] + first.values[j] * sine.values[j];
    }
    store_floats(at, turned_first);
    store_floats(at + pairs, turned_second);
  }
}

}  // namespace

void CudaOps::rotary(const RotaryArgs& args) {
  with_activation_type("rotary", args.x.dtype(), [&]<class T>(T) {
    const RotaryShape shape(args);
    T* x = args.x.as<T>();
    const std::int64_t work = shape.tokens * shape.heads * shape.pairs;
    if (work == 0) return;
    internal_check(shape.tokens <= INT32_MAX && shape.heads * shape.pairs <= INT32_MAX, "rotary: too large",
                   shape.tokens, shape.heads, shape.pairs);
    const HeadPlaces places{.samples = static_cast<std::uint32_t>(args.x.dim(1)),
                            .sequence = args.x.stride(0),
                            .sample = args.x.stride(1),
                            .head = args.x.stride(2)};
    constexpr std::int64_t width = Vector<T>::size;
    const bool vectors = vectorizable<T>(shape.pairs, x) && places.sequence % width == 0 &&
                         places.sample % width == 0 && places.head % width == 0;
    // Enough to give every thread something: angles of about a thread each.
    const auto tokens_a_block = static_cast<std::uint32_t>(std::clamp<std::int64_t>(kBlockThreads / shape.pairs, 1, 4));
    const auto blocks = static_cast<unsigned>((shape.tokens + tokens_a_block - 1) / tokens_a_block);
    launch(stream_,
           {.grid = dim3(blocks),
            .block = dim3(kBlockThreads),
            .shared_bytes = static_cast<std::size_t>(2 * tokens_a_block * shape.pairs) * sizeof(float)},
           vectors ? rotary_kernel<T, static_cast<int>(width)> : rotary_kernel<T, 1>, x, places, shape, tokens_a_block,
           args.inverse);
  });
}

}  // namespace megatron
