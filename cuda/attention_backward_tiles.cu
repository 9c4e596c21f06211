// Attention's gradients on tensor cores: FlashAttention-2 (Dao 2023). Probabilities are recomputed tile by tile from
// the saved log-sum-exp; with delta = rowsum(dout ∘ out), the gradient of the scores needs no sum over a whole row.
//
// Two kernels: the gradients of keys and values, a block for 128 keys of a key head, summed over its query heads and
// their tiles of queries; the gradients of queries, a block for 128 of them, over tiles of keys. Both compute scores
// and their gradients each for themselves: seven products where five would do, but every sum stays in registers from
// its first term to its last, in one order, and nothing is exchanged between warps.
#include "cuda/attention_backward.cuh"
#include "cuda/attention_tally.cuh"
#include "cuda/attention_tile.cuh"

namespace megatron::cuda_attention {

namespace {

constexpr int kRows = 128;  ///< rows of a block, on the side whose gradients it computes
static_assert(kQueryPadding % kRows == 0);

/// How a block divides its work. Sums of 32 rows a warp read shared memory least often, but those of keys and values
/// for 128 elements only fit into the registers for 16.
template <int kSize, bool kKeysAreRows, Form kForm, bool kCompact>
struct Division {
  static constexpr bool kWide = kSize > 64, kGeneral = kForm != Form::plain;
  static constexpr int kRowTiles = kKeysAreRows && kWide ? 1 : 2, kWarpRows = 16 * kRowTiles;
  static constexpr int kThreads = kRows / kWarpRows * 32;
  /// Rows of the other side in shared memory, of which a warp computes with kStep at a time.
  static constexpr int kTile = !kKeysAreRows ? 32 : !kCompact ? 64 : kGeneral ? 16 : 32;
  static constexpr int kStep = kKeysAreRows && kWide ? kTile : 32;
  static constexpr int kBlocks = kKeysAreRows ? (kWide ? 1 : 2) : (kWide ? 2 : 3);  ///< on a multiprocessor
  static constexpr int kStatistics = 2 * (kKeysAreRows ? 2 * kTile : kRows);
  static constexpr int kExchanges = kGeneral ? kThreads / 32 : 1;
  /// Shared memory: the block's own rows, twice a tile of the other side's; and what else the kernel has.
  static constexpr std::size_t kTileBytes = Tile<std::uint16_t, kSize>::bytes(2 * kRows + 4 * kTile);
  static constexpr std::size_t kBytes = kTileBytes + kStatistics * sizeof(float) + kExchanges * kExchangedDraws * 2;

  /// The least that a block has on any GPU of compute capability 8.0 or later: 99 KiB on 8.6, 8.9 and 12.x. One
  /// division needs more, and has a compact one to stand in for it.
  static constexpr std::size_t kLeastBytes = 99u << 10;
  static_assert(kBytes <= kLeastBytes || (kKeysAreRows && kWide && !kCompact));
};

/// Starts to copy `count` statistics, a multiple of 4, into shared memory.
__device__ __forceinline__ void load_statistics_later(float* to, const float* from, int count) {
  const int i = static_cast<int>(threadIdx.x) * 4;
  if (i < count) ptx::copy_16_bytes_later(to + i, from + i, true);
}

/// Scores become the probabilities that dropout left (to be multiplied by its scale), dprobabilities the gradients of
/// the scores, p · (multiplier · dprobability - delta) with p = 2^(factor · score - reference). The statistics are
/// those of the matrix's first query and on. With kCapped the gradients are those of the scores before they were
/// capped: times 1 - (score / largest)², largest the cap in units of log2.
template <bool kKeysAreRows, bool kDropout, bool kCapped, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void differentiate(float (&scores)[kRowTiles][kColumnTiles][4],
                                              float (&dprobabilities)[kRowTiles][kColumnTiles][4], float factor,
                                              const float* references, const float* deltas,
                                              const Kept<kRowTiles, kColumnTiles>& kept, float dropout_scale,
                                              float largest) {
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = kKeysAreRows ? 8 * n + column_of(i) : 16 * t + row_of(i);
        const float score = scores[t][n][i];
        const float probability = ptx::exp2_approximately(score * factor - references[query]);
        float left = probability, gradient = dprobabilities[t][n][i];
        if constexpr (kDropout) {
          const bool keep = kept.has(t, n, i);
          left = keep ? probability : 0.0f;
          gradient = keep ? gradient * dropout_scale : 0.0f;
        }
        scores[t][n][i] = left;
        dprobabilities[t][n][i] = probability * (gradient - deltas[query]);
        if constexpr (kCapped) {
          const float share = fmaxf(score, -largest) / largest;  // -1 for hidden scores, which are -infinity
          dprobabilities[t][n][i] *= 1 - share * share;
        }
      }
    }
  }
}

/// One block's part of the gradients: of keys and values if kKeysAreRows, of queries if not. Of its own rows it keeps a
/// (keys or queries) and b (values or output gradients) in shared memory, and goes through the tiles of the other
/// side's.
template <class T, int kSize, bool kKeysAreRows, Form kForm, bool kCompact>
struct Part {
  using D = Division<kSize, kKeysAreRows, kForm, kCompact>;
  static constexpr bool kGeneral = kForm != Form::plain, kBiased = kForm == Form::biased;
  static constexpr bool kCapped = kForm == Form::capped;
  static constexpr int kRowTiles = D::kRowTiles, kColumnTiles = D::kStep / 8, kTile = D::kTile;
  using Sums = float[kRowTiles][kSize / 8][4];

  const BackwardParameters<T>& p;
  const Problem& problem;
  float* statistics;        ///< shared: of own queries, or twice of a tile's; references, then deltas
  std::uint16_t* exchange;  ///< shared, of the warp: for draw_kept()
  bool vectors;
  int sample, own_head, key_head, first, own_row;  ///< own_row: the warp's first in the block's tiles
  Visibility visibility;
  Tile<T, kSize> own_a, own_b, tiles;
  int begin, last;  ///< tiles from and to, of every head

  __device__ Part(const BackwardParameters<T>& parameters, float* shared_statistics, std::uint16_t* shared_exchange)
      : p(parameters), problem(p.problem), statistics(shared_statistics), exchange(shared_exchange) {
    vectors = !kGeneral || p.vectors;
    sample = static_cast<int>(blockIdx.z);
    own_head = static_cast<int>(blockIdx.y);
    key_head = kKeysAreRows ? own_head : own_head / problem.heads_per_key_head;
    // Under a causal mask the first keys and the last queries have the most work: they start first.
    first = static_cast<int>(kKeysAreRows ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * kRows;
    own_row = static_cast<int>(threadIdx.x / kWarpThreads) * D::kWarpRows;
    visibility = problem.masks.of_sample(sample);
    own_a = {dynamic_shared<T>()};
    own_b = own_a.after(kRows);
    tiles = own_b.after(kRows);
    if constexpr (kKeysAreRows) {
      begin = visibility.bounded ? std::max(0, first - visibility.query_offset) / kTile * kTile : 0;
      last = first < visibility.keys ? problem.masks.queries : 0;  // no query sees padding
    } else {
      const KeyBounds all = visibility.bounds(first, kRows);
      begin = all.least_low / kTile * kTile;
      last = all.greatest_high;
    }
  }

  __device__ int first_head() const { return kKeysAreRows ? key_head * problem.heads_per_key_head : own_head; }
  __device__ int rows() const { return (kKeysAreRows ? problem.masks.keys : problem.masks.queries) - first; }

  /// Moves to the next tile that the block has to do with, from this one of this head on: of queries of every head
  /// that shares the key head, or of keys. False if there is none.
  __device__ bool seek(int& head, int& tile) const {
    if constexpr (kKeysAreRows) {
      for (; head < (key_head + 1) * problem.heads_per_key_head; ++head, tile = begin) {
        for (; tile < last; tile += kTile) {
          const KeyBounds seen = visibility.bounds(tile, kTile);
          if (seen.meet(first, first + kRows)) return true;
          if (seen.least_low >= first + kRows) break;  // and what later queries see begins later still
        }
      }
      return false;
    } else {
      return tile < last;
    }
  }

  __device__ void load_statistics(float* to, int head, int query, int count) const {
    const std::int64_t row = (static_cast<std::int64_t>(sample) * problem.heads + head) * p.padded_queries + query;
    load_statistics_later(to, p.references + row, count);
    load_statistics_later(to + count, p.deltas + row, count);
  }

  __device__ void load_own() const {
    const Rows<const T> a = (kKeysAreRows ? p.k : p.q).rows(sample, own_head).from(first);
    const Rows<const T> b = (kKeysAreRows ? p.v : p.dout).rows(sample, own_head).from(first);
    const int there = (kKeysAreRows ? visibility.keys : visibility.queries) - first;  // padding is not
    load_later<kRows, D::kThreads>(own_a, a, there, problem.size, vectors);
    load_later<kRows, D::kThreads>(own_b, b, there, problem.size, vectors);
    if constexpr (!kKeysAreRows) load_statistics(statistics, own_head, first, kRows);
  }

  __device__ Tile<T, kSize> tile_a(int buffer) const { return tiles.after(2 * buffer * kTile); }
  __device__ Tile<T, kSize> tile_b(int buffer) const { return tile_a(buffer).after(kTile); }

  __device__ void load_tile(int head, int tile, int buffer) const {
    const int left = (kKeysAreRows ? visibility.queries : visibility.keys) - tile;
    const Rows<const T> a = kKeysAreRows ? p.q.rows(sample, head) : p.k.rows(sample, key_head);
    const Rows<const T> b = kKeysAreRows ? p.dout.rows(sample, head) : p.v.rows(sample, key_head);
    load_later<kTile, D::kThreads>(tile_a(buffer), a.from(tile), left, problem.size, vectors);
    load_later<kTile, D::kThreads>(tile_b(buffer), b.from(tile), left, problem.size, vectors);
    if constexpr (kKeysAreRows) load_statistics(statistics + 2 * kTile * buffer, head, tile, kTile);
  }

  /// Adds what a tile contributes to the gradients of the warp's rows: sums_a of own_a's, sums_b of own_b's if those
  /// are values. tally: gets the gradients of biased scores, of queries as rows.
  __device__ __forceinline__ void add_tile(Sums& sums_a, Sums& sums_b, DistanceTally& tally, int head, int tile,
                                           int buffer) const {
    const int own_first = first + own_row;
    const KeyBounds bounds =
        kKeysAreRows ? visibility.bounds(tile, kTile) : problem.masks.of_sample(sample).bounds(own_first, D::kWarpRows);
    const int first_key = kKeysAreRows ? own_first : tile, last_key = first_key + (kKeysAreRows ? D::kWarpRows : kTile);
    if (!bounds.meet(first_key, last_key)) return;
    const bool covered = bounds.cover(first_key, last_key);
    const float log2_scale = problem.scale * kLog2E, slope = kGeneral ? problem.masks.slope(head) * kLog2E : 0.0f;
    // Minus infinity stays it by a positive factor only.
    const bool biased = kBiased && problem.distances.bias != nullptr;  // see Form
    const bool sloped = kGeneral && !kCapped && (slope != 0 || log2_scale <= 0 || biased);
#pragma unroll 1
    for (int step = 0; step < kTile; step += D::kStep) {
      const int query = kKeysAreRows ? tile + step : own_first, key = kKeysAreRows ? own_first : tile + step;
      float scores[kRowTiles][kColumnTiles][4] = {}, dprobabilities[kRowTiles][kColumnTiles][4] = {};
      multiply_transposed(scores, own_a, own_row, tile_a(buffer), step);
      if constexpr (kCapped) cap_scores(scores, log2_scale, problem.masks.softcap);
      if (sloped) add_slope<kKeysAreRows>(scores, log2_scale, slope, key - visibility.position(query));
      if (biased) {
        add_distance_bias<kKeysAreRows>(scores, problem.distances, problem.distances.of_head(head),
                                        key - visibility.position(query));
      }
      if (!covered) hide_unseen<kKeysAreRows>(scores, problem.masks.of_sample(sample), query, key);
      multiply_transposed(dprobabilities, own_b, own_row, tile_b(buffer), step);
      Kept<kRowTiles, kColumnTiles> kept = Kept<kRowTiles, kColumnTiles>::everything();
      if (kGeneral && problem.drops.positions != nullptr) {
        kept = draw_kept<kKeysAreRows, kRowTiles, kColumnTiles>(problem.drops, sample, head, visibility, query, key,
                                                                exchange);
      }
      const float* references = statistics + (kKeysAreRows ? 2 * kTile * buffer + step : own_row);
      differentiate<kKeysAreRows, kGeneral, kCapped>(scores, dprobabilities, sloped || kCapped ? 1.0f : log2_scale,
                                                     references, references + (kKeysAreRows ? kTile : kRows), kept,
                                                     problem.drops.scale, problem.masks.softcap * kLog2E);
      if constexpr (kBiased && !kKeysAreRows) {
        tally.add(dprobabilities, problem.distances, key - visibility.position(query));
      }
      std::uint32_t left[kRowTiles][D::kStep / 16][4];
      if constexpr (kKeysAreRows) {
        pack_left<T>(left, scores);
        multiply(sums_b, left, tile_b(buffer), step);
      }
      pack_left<T>(left, dprobabilities);
      multiply(sums_a, left, tile_a(buffer), step);
    }
  }

  /// The warp's rows of one gradient, through the rows of a tile that it has read last.
  __device__ void store(const Sums& sums, float factor, Tile<T, kSize> staging, const Heads<T>& to) const {
    float factors[kRowTiles][2];
    for (auto& both : factors) both[0] = both[1] = factor;
    store_rows(sums, factors, staging, own_row, to.rows(sample, own_head).from(first + own_row), rows() - own_row,
               problem.size, vectors);
  }
};

/// On a multiprocessor of sm_90, by launch bounds and shared memory:
///   keys and values, kSize  64: 2 blocks of  64 KiB,  8 warps
///   keys and values, kSize 128: 1 block  of 128 KiB,  8 warps
///   queries,         kSize  64: 3 blocks of  48 KiB, 12 warps
///   queries,         kSize 128: 2 blocks of  96 KiB,  8 warps (1 block on sm_80, for its shared memory)
template <class T, int kSize, bool kKeysAreRows, Form kForm, bool kCompact>
__global__ void __launch_bounds__(Division<kSize, kKeysAreRows, kForm, kCompact>::kThreads,
                                  Division<kSize, kKeysAreRows, kForm, kCompact>::kBlocks)
    backward_kernel(const BackwardParameters<T> p) {
  using D = Division<kSize, kKeysAreRows, kForm, kCompact>;
  __align__(16) __shared__ float statistics[D::kStatistics];
  __align__(16) __shared__ std::uint16_t exchange[D::kExchanges][kExchangedDraws];
  const Part<T, kSize, kKeysAreRows, kForm, kCompact> part(p, statistics,
                                                           exchange[D::kGeneral ? threadIdx.x / kWarpThreads : 0]);
  int head = part.first_head(), tile = part.begin, buffer = 0;
  bool more = part.seek(head, tile);
  part.load_own();
  if (more) part.load_tile(head, tile, buffer);
  ptx::commit_copies();
  float sums_a[D::kRowTiles][kSize / 8][4] = {}, sums_b[D::kRowTiles][kSize / 8][4] = {};
  DistanceTally tally;
#pragma unroll 1
  while (more) {
    int next_head = head, next_tile = tile + D::kTile;
    more = part.seek(next_head, next_tile);
    ptx::wait_for_copies<0>();
    __syncthreads();  // this tile is there, and all threads are done with the one before
    if (more) part.load_tile(next_head, next_tile, 1 - buffer);
    ptx::commit_copies();
    part.add_tile(sums_a, sums_b, tally, head, tile, buffer);
    head = next_head;
    tile = next_tile;
    buffer = 1 - buffer;
  }
  ptx::wait_for_copies<0>();
  __syncthreads();  // the block's own rows are there, even where nothing is seen and no thread has waited for them
  part.store(sums_a, p.problem.scale, part.own_a, kKeysAreRows ? p.dk : p.dq);
  if constexpr (kForm == Form::biased && !kKeysAreRows) tally.store(p.distance_sums, p.problem);
  if constexpr (kKeysAreRows) part.store(sums_b, p.problem.drops.scale, part.own_b, p.dv);
}

template <class T, int kSize, bool kKeysAreRows, Form kForm, bool kCompact>
void launch_divided(cudaStream_t stream, const BackwardParameters<T>& p) {
  using D = Division<kSize, kKeysAreRows, kForm, kCompact>;
  const Problem& problem = p.problem;
  const LaunchShape shape{.grid = grid_of(kKeysAreRows ? problem.masks.keys : problem.masks.queries, kRows,
                                          kKeysAreRows ? problem.key_heads : problem.heads, problem.samples),
                          .block = dim3(D::kThreads),
                          .shared_bytes = D::kTileBytes};
  launch(stream, shape, backward_kernel<T, kSize, kKeysAreRows, kForm, kCompact>, p);
}

template <class T, int kSize, Form kForm>
void launch_halves(cudaStream_t stream, const BackwardParameters<T>& p, std::size_t block_bytes) {
  if (p.problem.masks.keys > 0) {
    if (kSize > 64 && Division<kSize, true, kForm, false>::kBytes > block_bytes) {
      launch_divided<T, kSize, true, kForm, (kSize > 64)>(stream, p);
    } else {
      launch_divided<T, kSize, true, kForm, false>(stream, p);
    }
  }
  if (p.problem.masks.queries > 0) launch_divided<T, kSize, false, kForm, false>(stream, p);
}

/// block_bytes: shared memory that a block can have.
template <class T, int kSize>
void launch_backward(cudaStream_t stream, const BackwardParameters<T>& p, std::size_t block_bytes) {
  switch (p.problem.form(p.vectors)) {
    case Form::plain: return launch_halves<T, kSize, Form::plain>(stream, p, block_bytes);
    case Form::general: return launch_halves<T, kSize, Form::general>(stream, p, block_bytes);
    case Form::biased: return launch_halves<T, kSize, Form::biased>(stream, p, block_bytes);
    case Form::capped: return launch_halves<T, kSize, Form::capped>(stream, p, block_bytes);
  }
}

}  // namespace

template <class T>
void attention_backward_tiles(cudaStream_t stream, const BackwardParameters<T>& parameters, std::size_t block_bytes) {
  if (parameters.problem.size <= 64) return launch_backward<T, 64>(stream, parameters, block_bytes);
  launch_backward<T, kMaximumTileSize>(stream, parameters, block_bytes);
}

template void attention_backward_tiles(cudaStream_t, const BackwardParameters<BFloat16>&, std::size_t);
template void attention_backward_tiles(cudaStream_t, const BackwardParameters<Float16>&, std::size_t);

}  // namespace megatron::cuda_attention
