// Attention with ordinary f32 arithmetic. A block has 32 rows of one head, a warp 4 of them; tiles of 32 rows of the
// other side go by in shared memory, a lane with each. What a warp's rows make of a tile is laid down in shared memory,
// where every lane then adds it up for its own columns of the result.
#include "cuda/attention_exact.h"

#include "backend/ops/arguments.h"
#include "cuda/attention_backward.cuh"
#include "cuda/attention_tally.cuh"

namespace megatron::cuda_attention {

namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kWarpRows = 4, kTileRows = 32;
static_assert(kWarps * kWarpRows == kTileRows);

/// Shared memory of one block for heads of `size`.
struct Memory {
  int size, stride;  ///< stride: of tiles that lanes read a row each of, odd, so that they meet different banks

  __host__ __device__ explicit Memory(int head_size) : size(head_size), stride(head_size | 1) {}
  __host__ __device__ int floats(int own, int tiles, int exchanges) const {
    return kTileRows * (own * size + tiles * stride) + exchanges * kTileRows * kTileRows;
  }
  __device__ float* own(int i) const { return dynamic_shared<float>() + i * kTileRows * size; }
  __device__ float* tile(int own_count, int i) const { return own(own_count) + i * kTileRows * stride; }
  /// The warp's part of exchange i.
  __device__ float* exchange(int own_count, int tiles, int i) const {
    const int warp = static_cast<int>(threadIdx.x / kWarpThreads);
    return tile(own_count, tiles) + i * kTileRows * kTileRows + warp * kWarpRows * kTileRows;
  }
};

/// to[kTileRows, size] = the first `rows` of a head's rows, 0 where there is none.
template <class T>
__device__ void load_rows(float* to, int stride, Rows<const T> from, int rows, int size) {
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * size; i += kThreads) {
    const int row = i / size, column = i % size;
    to[row * stride + column] = row < rows ? to_wide(from.row(row)[column]) : 0.0f;
  }
}

/// Products of the warp's own rows with the lane's row of a tile.
__device__ __forceinline__ void dot_products(float (&result)[kWarpRows], const float* own, const float* row, int size) {
  for (int r = 0; r < kWarpRows; ++r) result[r] = 0;
  for (int i = 0; i < size; ++i) {
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) result[r] += own[r * size + i] * row[i];
  }
}

/// Products become scores in units of log2, capped.
__device__ __forceinline__ void cap_scores(float (&scores)[kWarpRows], const Problem& problem) {
  const float softcap = problem.masks.softcap;
#pragma unroll
  for (float& score : scores) score = softcap * kLog2E * tanhf(score * (problem.scale / softcap));
}
/// The factor from products, or from what cap_scores() left, to scores in units of log2.
template <bool kCapped>
__device__ __forceinline__ float log2_factor(const Problem& problem) {
  return kCapped ? 1.0f : problem.scale * kLog2E;
}

/// A lane's columns lane, lane + 32, ... of the warp's rows of a result.
template <int kColumns>
using Sums = float[kWarpRows][kColumns];

/// sums += left · tile, left[kWarpRows, kTileRows] in the warp's exchange.
template <int kColumns>
__device__ __forceinline__ void add_products(Sums<kColumns>& sums, const float* left, const float* tile, int stride,
                                             int size) {
  const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
  for (int j = 0; j < kTileRows; ++j) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (lane + 32 * c >= size) continue;
      const float value = tile[j * stride + lane + 32 * c];
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) sums[r][c] += left[r * kTileRows + j] * value;
    }
  }
}

template <int kColumns, class T>
__device__ __forceinline__ void store_row(const float (&sums)[kColumns], float factor, T* to, int size) {
  const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    if (lane + 32 * c < size) to[lane + 32 * c] = ptx::from_float<T>(sums[c] * factor);
  }
}

/// The factor by which dropout multiplies one probability.
__device__ float multiplier(const Drops& drops, int sample, int head, int query, int key) {
  if (drops.positions == nullptr) return 1;
  const uint4 draws = drops.draws(sample, head, query, key / 8);
  return draw_of(draws, static_cast<unsigned>(key % 8)) >= drops.threshold ? drops.scale : 0.0f;
}

template <class T>
struct Forward {
  Problem problem;
  Heads<const T> q, k, v;
  Heads<T> out;
  float* log_sum_exp;
};

/// Online softmax as in attention_forward.cu. kCapped: with a soft cap.
template <class T, int kColumns, bool kCapped>
__global__ void __launch_bounds__(kThreads) exact_forward_kernel(const Forward<T> p) {
  const Problem& problem = p.problem;
  const int sample = static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y), size = problem.size;
  const int key_head = head / problem.heads_per_key_head, lane = static_cast<int>(threadIdx.x % kWarpThreads);
  const int first = static_cast<int>(blockIdx.x) * kTileRows;
  const int own_row = static_cast<int>(threadIdx.x / kWarpThreads) * kWarpRows;
  const Visibility visibility = problem.masks.of_sample(sample);
  const KeyBounds all = visibility.bounds(first, kTileRows);
  const Memory memory(size);
  float *q = memory.own(0), *k = memory.tile(1, 0), *v = memory.tile(1, 1), *exchange = memory.exchange(1, 2, 0);
  const float slope = problem.masks.slope(head) * kLog2E;
  const float* bias = problem.distances.bias == nullptr ? nullptr : problem.distances.of_head(head);

  load_rows(q, size, p.q.rows(sample, head).from(first), visibility.queries - first, size);
  Sums<kColumns> output = {};
  float maximum[kWarpRows], sum[kWarpRows];
  for (int r = 0; r < kWarpRows; ++r) maximum[r] = -kInfinity, sum[r] = 0;
  for (int tile = all.least_low / kTileRows * kTileRows; tile < all.greatest_high; tile += kTileRows) {
    __syncthreads();
    load_rows(k, memory.stride, p.k.rows(sample, key_head).from(tile), visibility.keys - tile, size);
    load_rows(v, memory.stride, p.v.rows(sample, key_head).from(tile), visibility.keys - tile, size);
    __syncthreads();
    const int key = tile + lane;
    float scores[kWarpRows];
    dot_products(scores, q + own_row * size, k + lane * memory.stride, size);
    if constexpr (kCapped) cap_scores(scores, problem);
    for (int r = 0; r < kWarpRows; ++r) {
      const int query = std::min(first + own_row + r, visibility.queries - 1);
      const int distance = key - visibility.position(query);
      const bool seen = visibility.range(query).has(key);
      float score =
          seen ? scores[r] * log2_factor<kCapped>(problem) + slope * static_cast<float>(distance) : -kInfinity;
      if (bias != nullptr) score += problem.distances.at(bias, distance);
      const float before = maximum[r];
      maximum[r] = warp_maximum(fmaxf(before, score));
      const float reference = maximum[r] == -kInfinity ? 0.0f : maximum[r];
      const float correction = exp2f(before - reference), probability = exp2f(score - reference);
      sum[r] = sum[r] * correction + probability;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) output[r][c] *= correction;
      exchange[r * kTileRows + lane] = seen ? probability * multiplier(problem.drops, sample, head, query, key) : 0.0f;
    }
    __syncwarp();
    add_products<kColumns>(output, exchange, v, memory.stride, size);
    __syncwarp();
  }
  for (int r = 0; r < kWarpRows; ++r) {
    const int query = first + own_row + r;
    const float whole = warp_sum(sum[r]);
    if (query >= visibility.queries) continue;
    store_row<kColumns>(output[r], whole == 0 ? 0.0f : 1 / whole, p.out.rows(sample, head).row(query), size);
    if (lane == 0) {
      p.log_sum_exp[(static_cast<std::int64_t>(sample) * problem.heads + head) * visibility.queries + query] =
          whole == 0 ? -kInfinity : maximum[r] * kLn2 + logf(whole);
    }
  }
}

/// The gradients of keys and values if kKeysAreRows, of queries if not; as in attention_backward_tiles.cu.
template <class T, int kColumns, bool kCapped, bool kKeysAreRows>
__global__ void __launch_bounds__(kThreads) exact_backward_kernel(const BackwardParameters<T> p) {
  const Problem& problem = p.problem;
  const int sample = static_cast<int>(blockIdx.z), own_head = static_cast<int>(blockIdx.y), size = problem.size;
  const int group = problem.heads_per_key_head, key_head = kKeysAreRows ? own_head : own_head / group;
  const int lane = static_cast<int>(threadIdx.x % kWarpThreads), first = static_cast<int>(blockIdx.x) * kTileRows;
  const int own_row = static_cast<int>(threadIdx.x / kWarpThreads) * kWarpRows;
  const Visibility visibility = problem.masks.of_sample(sample);
  const int queries = visibility.queries, rows = (kKeysAreRows ? problem.masks.keys : queries) - first;
  const int there = (kKeysAreRows ? visibility.keys : queries) - first;  // rows without padding, which is taken as 0
  const Memory memory(size);
  // Own: keys and values, tiles: queries and output gradients; or the other way round.
  float *own_a = memory.own(0), *own_b = memory.own(1), *tile_a = memory.tile(2, 0), *tile_b = memory.tile(2, 1);
  float *dropped = memory.exchange(2, 2, 0), *dscores = memory.exchange(2, 2, 1);
  load_rows(own_a, size, (kKeysAreRows ? p.k : p.q).rows(sample, own_head).from(first), there, size);
  load_rows(own_b, size, (kKeysAreRows ? p.v : p.dout).rows(sample, own_head).from(first), there, size);

  Sums<kColumns> sums_a = {}, sums_b = {};
  DistanceTally tally;
  const int heads = kKeysAreRows ? group : 1, others = kKeysAreRows ? queries : visibility.keys;
  const KeyBounds own = kKeysAreRows ? KeyBounds{} : visibility.bounds(first, kTileRows);
  for (int i = 0; i < heads; ++i) {
    const int head = kKeysAreRows ? key_head * group + i : own_head;
    const float slope = problem.masks.slope(head) * kLog2E;
    const float* bias = problem.distances.bias == nullptr ? nullptr : problem.distances.of_head(head);
    const std::int64_t statistics = (static_cast<std::int64_t>(sample) * problem.heads + head) * p.padded_queries;
    for (int tile = 0; tile < others; tile += kTileRows) {
      const bool seen_at_all = kKeysAreRows ? visibility.bounds(tile, kTileRows).meet(first, first + kTileRows)
                                            : own.meet(tile, tile + kTileRows);
      if (!seen_at_all) continue;
      __syncthreads();
      load_rows(tile_a, memory.stride, (kKeysAreRows ? p.q.rows(sample, head) : p.k.rows(sample, key_head)).from(tile),
                others - tile, size);
      load_rows(tile_b, memory.stride,
                (kKeysAreRows ? p.dout.rows(sample, head) : p.v.rows(sample, key_head)).from(tile), others - tile,
                size);
      __syncthreads();
      float scores[kWarpRows], dprobabilities[kWarpRows];
      dot_products(scores, own_a + own_row * size, tile_a + lane * memory.stride, size);
      if constexpr (kCapped) cap_scores(scores, problem);
      dot_products(dprobabilities, own_b + own_row * size, tile_b + lane * memory.stride, size);
      for (int r = 0; r < kWarpRows; ++r) {
        const int key = kKeysAreRows ? first + own_row + r : tile + lane;
        const int query = std::min(kKeysAreRows ? tile + lane : first + own_row + r, queries - 1);
        const bool seen = visibility.range(query).has(key) && (kKeysAreRows ? tile + lane < queries : true);
        const int distance = key - visibility.position(query);
        const float share = kCapped ? scores[r] / (problem.masks.softcap * kLog2E) : 0.0f;
        float score = scores[r] * log2_factor<kCapped>(problem) + slope * static_cast<float>(distance);
        if (bias != nullptr) score += problem.distances.at(bias, distance);
        const float probability = seen ? exp2f(score - p.references[statistics + query]) : 0.0f;
        const float factor = seen ? multiplier(problem.drops, sample, head, query, key) : 0.0f;
        dropped[r * kTileRows + lane] = probability * factor;
        // Rows past the end: only the sum over distances would read their gradients.
        const bool counts = seen && (kKeysAreRows || own_row + r < rows);
        scores[r] = counts ? probability * (factor * dprobabilities[r] - p.deltas[statistics + query]) : 0.0f;
        dscores[r * kTileRows + lane] = kCapped ? scores[r] * (1 - share * share) : scores[r];
      }
      if (!kKeysAreRows && p.distance_sums != nullptr) {
        const int distance = tile - visibility.position(first + own_row);
        tally.add(scores, problem.distances, distance - (kWarpRows - 1), distance + kTileRows - 1,
                  [&](int r) { return distance + lane - r; });
      }
      __syncwarp();
      add_products<kColumns>(sums_a, dscores, tile_a, memory.stride, size);
      if constexpr (kKeysAreRows) add_products<kColumns>(sums_b, dropped, tile_b, memory.stride, size);
      __syncwarp();
    }
  }
  if constexpr (!kKeysAreRows) tally.store(p.distance_sums, problem);
  for (int r = 0; r < kWarpRows && own_row + r < rows; ++r) {
    const int row = first + own_row + r;
    store_row<kColumns>(sums_a[r], problem.scale, (kKeysAreRows ? p.dk : p.dq).rows(sample, own_head).row(row), size);
    if constexpr (kKeysAreRows) store_row<kColumns>(sums_b[r], 1.0f, p.dv.rows(sample, own_head).row(row), size);
  }
}

/// Calls body with the number of columns a lane needs and whether scores are capped, as types' `value`.
template <class Body>
void with_columns(const char* verb, const Problem& problem, const Body& body) {
  verify(problem.size <= kMaximumExactSize, ErrorKind::configuration,
         "{}: heads of {} elements; this backend computes attention for up to {}", verb, problem.size,
         kMaximumExactSize);
  const auto of_columns = [&](auto columns) {
    if (problem.masks.softcap > 0) return body(columns, std::true_type());
    body(columns, std::false_type());
  };
  if (problem.size <= 64) return of_columns(std::integral_constant<int, 2>{});
  if (problem.size <= 128) return of_columns(std::integral_constant<int, 4>{});
  of_columns(std::integral_constant<int, kMaximumExactSize / 32>{});
}

std::size_t bytes_of(int floats) {
  return sizeof(float) * static_cast<std::size_t>(floats);
}

}  // namespace

void attention_forward_exact(cudaStream_t stream, const Problem& problem, const AttentionForwardArgs& args) {
  with_activation_type("attention_forward", args.q.dtype(), [&]<class T>(T) {
    with_columns("attention_forward", problem, [&](auto columns, auto capped) {
      launch(stream,
             {.grid = grid_of(problem.masks.queries, kTileRows, problem.heads, problem.samples),
              .block = dim3(kThreads),
              .shared_bytes = bytes_of(Memory(problem.size).floats(1, 2, 1))},
             exact_forward_kernel<T, columns.value, capped.value>,
             Forward<T>{problem, heads_of<T>(args.q), heads_of<T>(args.k), heads_of<T>(args.v), heads_of<T>(args.out),
                        args.log_sum_exp.as<float>()});
    });
  });
}

template <class T>
void attention_backward_exact(cudaStream_t stream, const BackwardParameters<T>& parameters) {
  const Problem& problem = parameters.problem;
  with_columns("attention_backward", problem, [&](auto columns, auto capped) {
    LaunchShape shape{.grid = grid_of(problem.masks.keys, kTileRows, problem.key_heads, problem.samples),
                      .block = dim3(kThreads),
                      .shared_bytes = bytes_of(Memory(problem.size).floats(2, 2, 2))};
    if (problem.masks.keys > 0) {
      launch(stream, shape, exact_backward_kernel<T, columns.value, capped.value, true>, parameters);
    }
    shape.grid = grid_of(problem.masks.queries, kTileRows, problem.heads, problem.samples);
    if (problem.masks.queries > 0) {
      launch(stream, shape, exact_backward_kernel<T, columns.value, capped.value, false>, parameters);
    }
  });
}

template void attention_backward_exact(cudaStream_t, const BackwardParameters<float>&);
template void attention_backward_exact(cudaStream_t, const BackwardParameters<BFloat16>&);
template void attention_backward_exact(cudaStream_t, const BackwardParameters<Float16>&);

}  // namespace megatron::cuda_attention
