// Attention forward on tensor cores: FlashAttention-2 (Dao 2023). A block takes 128 queries of one head, a warp 32 of
// them; the running row maximum and row sum of the softmax go along tiles of 32 keys, and what was summed up before is
// rescaled when the maximum rises much. The next tile of keys and values is copied into shared memory while the warps
// compute with this one. Tiles that none of the block's queries sees are not loaded, those that none of the warp's sees
// not computed, and only those that cut through a mask look at it.
#include "backend/ops/arguments.h"
#include "cuda/attention_distances.h"
#include "cuda/attention_exact.h"
#include "cuda/attention_tile.cuh"
#include "cuda/cuda_ops.h"
#include "cuda/distance_floats.h"

namespace megatron {

using namespace cuda_attention;

namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kRowTiles = 2, kWarpQueries = 16 * kRowTiles;
constexpr int kQueries = kWarps * kWarpQueries, kKeys = 32, kKeyTiles = kKeys / 8;

template <class T>
struct Parameters {
  Problem problem;
  Heads<const T> q, k, v;
  Heads<T> out;
  float* log_sum_exp;
  bool vectors;
};

/// The softmax of a warp's rows so far: a lane has rows row_of(0) and row_of(2) of each tile, and of the sum its share.
/// Probabilities are relative to 2^(factor · reference), the greatest score when it was last taken.
struct Softmax {
  float reference[kRowTiles][2], sum[kRowTiles][2];
};

/// References go up to the greatest score once it exceeds one of the warp's by this power of two: sums and rounded
/// probabilities lose nothing as long as it does not, and what was summed up before need not be rescaled.
constexpr float kMostExcess = 8;

template <int kColumnTiles>
__device__ __forceinline__ void raise_references(const float (&scores)[kRowTiles][kKeyTiles][4], Softmax& softmax,
                                                 float (&output)[kRowTiles][kColumnTiles][4], float factor) {
  float maximum[kRowTiles][2];
  bool exceeded = false;
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& most = maximum[t][half];
      most = softmax.reference[t][half];
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
        most = fmaxf(most, fmaxf(scores[t][n][2 * half], scores[t][n][2 * half + 1]));
      }
      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 2));
      exceeded = exceeded || (most - softmax.reference[t][half]) * factor > kMostExcess;
    }
  }
  if (!__any_sync(kFullWarp, exceeded)) return;
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float fall = (softmax.reference[t][half] - maximum[t][half]) * factor;
      const float correction = maximum[t][half] == -kInfinity ? 1.0f : ptx::exp2_approximately(fall);
      softmax.reference[t][half] = maximum[t][half];
      softmax.sum[t][half] *= correction;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        output[t][n][2 * half] *= correction;
        output[t][n][2 * half + 1] *= correction;
      }
    }
  }
}

/// Scores, in units of log2 once they are multiplied by factor, become probabilities.
__device__ __forceinline__ void exponentiate(float (&scores)[kRowTiles][kKeyTiles][4], Softmax& softmax, float factor) {
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float most = softmax.reference[t][half];
      const float reference = most == -kInfinity ? 0.0f : most * factor;  // 0 for rows that saw nothing yet
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[t][n][i] = ptx::exp2_approximately(scores[t][n][i] * factor - reference);
          sum += scores[t][n][i];
        }
      }
      softmax.sum[t][half] += sum;
    }
  }
}

/// Stores the warp's rows from `row` of the head on, through rows from own_row on of a tile that is free.
template <class T, int kSize>
__device__ __forceinline__ void store_quotients(const Parameters<T>& p, const Softmax& softmax,
                                                const float (&output)[kRowTiles][kSize / 8][4], float factor,
                                                Tile<T, kSize> staging, int own_row, int sample, int head, int row,
                                                bool vectors) {
  const Problem& problem = p.problem;
  const int queries = problem.masks.queries, rows = queries - row;
  float* log_sum_exp = p.log_sum_exp + (static_cast<std::int64_t>(sample) * problem.heads + head) * queries + row;
  float factors[kRowTiles][2];
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = softmax.sum[t][half];
      sum += __shfl_xor_sync(kFullWarp, sum, 1);
      sum += __shfl_xor_sync(kFullWarp, sum, 2);
      factors[t][half] = sum == 0 ? 0.0f : problem.drops.scale / sum;
      const int i = 16 * t + row_of(2 * half);
      if (column_of(0) == 0 && i < rows) {
        log_sum_exp[i] = sum == 0 ? -kInfinity : softmax.reference[t][half] * factor * kLn2 + logf(sum);
      }
    }
  }
  store_rows(output, factors, staging, own_row, p.out.rows(sample, head).from(row), rows, problem.size, vectors);
}

/// Shared memory: the queries, and twice a tile of keys and one of values. On a multiprocessor of sm_90, by launch
/// bounds:
///   kSize  64: 3 blocks of 32 KiB, 12 warps
///   kSize 128: 2 blocks of 64 KiB,  8 warps
template <class T, int kSize, Form kForm>
__global__ void __launch_bounds__(kThreads, kSize <= 64 ? 3 : 2) forward_kernel(const Parameters<T> p) {
  constexpr bool kGeneral = kForm != Form::plain;
  __align__(16) __shared__ std::uint16_t exchange[kGeneral ? kWarps : 1][kExchangedDraws];
  const Problem& problem = p.problem;
  const int sample = static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
  const int key_head = head / problem.heads_per_key_head, warp = static_cast<int>(threadIdx.x / kWarpThreads);
  // Under a causal mask the last queries have the most work: they start first.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kQueries, own_row = warp * kWarpQueries;
  const Visibility visibility = problem.masks.of_sample(sample);
  const KeyBounds all = visibility.bounds(first, kQueries), own = visibility.bounds(first + own_row, kWarpQueries);
  const int begin = all.least_low / kKeys * kKeys, end = all.greatest_high;
  const Tile<T, kSize> q{dynamic_shared<T>()}, tiles = q.after(kQueries);
  const Rows<const T> keys = p.k.rows(sample, key_head), values = p.v.rows(sample, key_head);
  const float log2_scale = problem.scale * kLog2E, slope = problem.masks.slope(head) * kLog2E;
  const bool biased = kForm == Form::biased && problem.distances.bias != nullptr;  // see Form
  // The maximum of scores is that of their multiples by a positive factor only.
  const bool sloped = kGeneral && kForm != Form::capped && (slope != 0 || log2_scale <= 0 || biased);
  const bool vectors = !kGeneral || p.vectors;
  const float factor = sloped || kForm == Form::capped ? 1.0f : log2_scale;

  load_later<kQueries, kThreads>(q, p.q.rows(sample, head).from(first), visibility.queries - first, problem.size,
                                 vectors);
  const auto load_tile = [&](int key, int buffer) {
    const Tile<T, kSize> k = tiles.after(2 * buffer * kKeys), v = k.after(kKeys);
    load_later<kKeys, kThreads>(k, keys.from(key), visibility.keys - key, problem.size, vectors);
    load_later<kKeys, kThreads>(v, values.from(key), visibility.keys - key, problem.size, vectors);
  };
  if (begin < end) load_tile(begin, 0);
  ptx::commit_copies();
  float output[kRowTiles][kSize / 8][4] = {};
  Softmax softmax;
  for (int t = 0; t < kRowTiles; ++t) {
    softmax.reference[t][0] = softmax.reference[t][1] = -kInfinity;
    softmax.sum[t][0] = softmax.sum[t][1] = 0;
  }
#pragma unroll 1
  for (int key = begin, buffer = 0; key < end; key += kKeys, buffer = 1 - buffer) {
    ptx::wait_for_copies<0>();
    __syncthreads();  // this tile is there, and all threads are done with the one before
    if (key + kKeys < end) load_tile(key + kKeys, 1 - buffer);
    ptx::commit_copies();
    if (!own.meet(key, key + kKeys)) continue;
    const Tile<T, kSize> k = tiles.after(2 * buffer * kKeys), v = k.after(kKeys);
    float scores[kRowTiles][kKeyTiles][4] = {};
    multiply_transposed(scores, q, own_row, k, 0);
    if constexpr (kForm == Form::capped) cap_scores(scores, log2_scale, problem.masks.softcap);
    if (sloped) add_slope<false>(scores, log2_scale, slope, key - visibility.position(first + own_row));
    if (biased) {
      add_distance_bias<false>(scores, problem.distances, problem.distances.of_head(head),
                               key - visibility.position(first + own_row));
    }
    if (!own.cover(key, key + kKeys)) hide_unseen<false>(scores, problem.masks.of_sample(sample), first + own_row, key);
    raise_references(scores, softmax, output, factor);
    exponentiate(scores, softmax, factor);
    if (kGeneral && problem.drops.positions != nullptr) {
      // The sum above is of the whole softmax: dropout acts on its quotients. What is kept is multiplied at the end.
      const auto kept = draw_kept<false, kRowTiles, kKeyTiles>(problem.drops, sample, head, visibility, first + own_row,
                                                               key, exchange[warp]);
#pragma unroll
      for (int i = 0; i < kRowTiles * kKeyTiles * 4; ++i) {
        const int t = i / (4 * kKeyTiles), n = i / 4 % kKeyTiles;
        if (!kept.has(t, n, i % 4)) scores[t][n][i % 4] = 0;
      }
    }
    std::uint32_t probabilities[kRowTiles][kKeys / 16][4];
    pack_left<T>(probabilities, scores);
    multiply(output, probabilities, v, 0);
  }

  ptx::wait_for_copies<0>();
  __syncthreads();  // the queries are there, even where nothing is seen and no thread has waited for them
  store_quotients(p, softmax, output, factor, q, own_row, sample, head, first + own_row, vectors);
}

template <class T, int kSize>
void launch_forward(cudaStream_t stream, const Parameters<T>& p) {
  const LaunchShape shape{.grid = grid_of(p.problem.masks.queries, kQueries, p.problem.heads, p.problem.samples),
                          .block = dim3(kThreads),
                          .shared_bytes = Tile<T, kSize>::bytes(kQueries + 4 * kKeys)};
  switch (p.problem.form(p.vectors)) {
    case Form::plain: return launch(stream, shape, forward_kernel<T, kSize, Form::plain>, p);
    case Form::general: return launch(stream, shape, forward_kernel<T, kSize, Form::general>, p);
    case Form::biased: return launch(stream, shape, forward_kernel<T, kSize, Form::biased>, p);
    case Form::capped: return launch(stream, shape, forward_kernel<T, kSize, Form::capped>, p);
  }
}

}  // namespace

void CudaOps::attention_forward(const AttentionForwardArgs& args) {
  const AttentionShape shape("attention_forward", args.q, args.k, args.v, args.mask, args.dropout);
  shape.check_queries(args.out);
  shape.check_log_sum_exp(args.log_sum_exp);
  with_activation_type("attention_forward", args.q.dtype(), [&]<class T>(T) {
    if (args.q.elements() == 0) return;
    const Problem problem(shape, args.mask, args.dropout, args.scale,
                          place_distances(stream_, args.mask, float_scratch(distance_floats(args.mask))));
    if constexpr (kHalf<T>) {
      if (!has_tiles<T>(problem.size, args.mask)) return attention_forward_exact(stream_, problem, args);
      const bool vectors = rows_are_vectors<T>(args.q) && rows_are_vectors<T>(args.k) && rows_are_vectors<T>(args.v) &&
                           rows_are_vectors<T>(args.out);
      const Parameters<T> parameters{problem,
                                     heads_of<T>(args.q),
                                     heads_of<T>(args.k),
                                     heads_of<T>(args.v),
                                     heads_of<T>(args.out),
                                     args.log_sum_exp.as<float>(),
                                     vectors};
      if (problem.size <= 64) return launch_forward<T, 64>(stream_, parameters);
      launch_forward<T, kMaximumTileSize>(stream_, parameters);
    } else {
      attention_forward_exact(stream_, problem, args);
    }
  });
}

}  // namespace megatron
