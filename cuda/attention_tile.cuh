// Tiles of 16-bit queries, keys and values in shared memory, and what one warp does with them on the tensor cores.
//
// A matrix in registers is [tiles of 16 rows][tiles of 8 columns][4], distributed over the warp's lanes as the result
// of multiply_add_16x8x16 (cuda/ptx.cuh): results of one product become the left side of the next without leaving the
// registers. Matrices of scores have queries as rows, or keys (kKeysAreRows), whichever the next product wants.
#pragma once

#include "cuda/attention_problem.cuh"

namespace megatron::cuda_attention {

__device__ __forceinline__ int lane_of_warp() {
  return static_cast<int>(threadIdx.x % kWarpThreads);
}
/// x, of which the compiler knows nothing: what is computed from it is not kept in registers from before a loop on.
__device__ __forceinline__ int computed_here(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
/// Where in its 16 × 8 tile a lane's element i is.
__device__ __forceinline__ int row_of(int i) {
  return lane_of_warp() / 4 + i / 2 * 8;
}
__device__ __forceinline__ int column_of(int i) {
  return lane_of_warp() % 4 * 2 + i % 2;
}

/// Rows of kSize elements in chunks of 16 bytes, from a multiple of 128 bytes on. Chunk c of row r lies at place
/// c ^ (r % 8): the eight rows' chunks that a matrix load reads at once are in different banks.
template <class T, int kSize>
struct Tile {
  static constexpr int kChunk = Vector<T>::size, kChunks = kSize / kChunk;
  T* data;

  static constexpr std::size_t bytes(int rows) { return sizeof(T) * static_cast<std::size_t>(rows * kSize); }
  __device__ T* chunk(int row, int c) const { return data + row * kSize + (c ^ (row % 8)) * kChunk; }
  /// The tile after this one's `rows` rows.
  __device__ Tile after(int rows) const { return {data + rows * kSize}; }
};

/// Starts to copy kRows rows of `size` elements, of which only the first `rows` exist, zeros for what does not. By all
/// kThreads of the block; to be committed and waited for. `vectors`: the rows consist of aligned vectors.
template <int kRows, int kThreads, class T, int kSize>
__device__ __forceinline__ void load_later(Tile<T, kSize> tile, Rows<const T> from, int rows, int size, bool vectors) {
  using Place = Tile<T, kSize>;
  constexpr int kStep = kThreads / Place::kChunks;
  static_assert(kThreads % Place::kChunks == 0 && kRows % kStep == 0);
  const int thread = computed_here(static_cast<int>(threadIdx.x));
  const int chunk = thread % Place::kChunks, column = chunk * Place::kChunk;
  const int first = thread / Place::kChunks;
  if (vectors) {
#pragma unroll(kRows > 64 ? 1 : 4)
    for (int row = first; row < first + kRows; row += kStep) {
      const bool valid = row < rows && column < size;
      ptx::copy_16_bytes_later(tile.chunk(row, chunk), valid ? from.row(row) + column : from.data, valid);
    }
  } else {
#pragma unroll 1
    for (int row = first; row < first + kRows; row += kStep) {
      Vector<T> values;
      for (int i = 0; i < Place::kChunk; ++i) {
        values.values[i] = row < rows && column + i < size ? from.row(row)[column + i] : T{0};
      }
      store_vector(tile.chunk(row, chunk), values);
    }
  }
}

/// result += a · bᵀ over all kSize columns: rows from a_row on of tile a, rows from b_row on of tile b, multiples of 8.
template <int kRowTiles, int kColumnTiles, class T, int kSize>
__device__ __forceinline__ void multiply_transposed(float (&result)[kRowTiles][kColumnTiles][4], Tile<T, kSize> a,
                                                    int a_row, Tile<T, kSize> b, int b_row) {
  const int lane = lane_of_warp();
  const T* a_rows = a.data + (a_row + lane % 16) * kSize;
  const T* b_rows = b.data + (b_row + lane % 8 + lane / 16 * 8) * kSize;
  const int a_turn = lane / 16 ^ lane % 8, b_turn = lane / 8 % 2 ^ lane % 8;
#pragma unroll
  for (int k = 0; k < kSize / 16; ++k) {
    std::uint32_t left[kRowTiles][4];
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      ptx::load_4_matrices(left[t], a_rows + 16 * t * kSize + ((2 * k) ^ a_turn) * 8);
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {
      std::uint32_t right[4];
      ptx::load_4_matrices(right, b_rows + 8 * n * kSize + ((2 * k) ^ b_turn) * 8);
      const std::uint32_t pairs[2][2] = {{right[0], right[1]}, {right[2], right[3]}};
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        ptx::multiply_add_16x8x16<T>(result[t][n], left[t], pairs[0]);
        ptx::multiply_add_16x8x16<T>(result[t][n + 1], left[t], pairs[1]);
      }
    }
  }
}

/// A matrix as the left side of a product: rounded to T, kDepth pieces of 16 columns.
template <class T, int kRowTiles, int kDepth>
__device__ __forceinline__ void pack_left(std::uint32_t (&left)[kRowTiles][kDepth][4],
                                          const float (&values)[kRowTiles][2 * kDepth][4]) {
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&four)[4] = values[t][2 * k + i / 2];
        left[t][k][i] = ptx::pack<T>(four[i % 2 * 2], four[i % 2 * 2 + 1]);
      }
    }
  }
}

/// result += left · b, of tile b the 16 kDepth rows from b_row on (a multiple of 8).
template <int kRowTiles, int kDepth, int kColumnTiles, class T, int kSize>
__device__ __forceinline__ void multiply(float (&result)[kRowTiles][kColumnTiles][4],
                                         const std::uint32_t (&left)[kRowTiles][kDepth][4], Tile<T, kSize> b,
                                         int b_row) {
  static_assert(8 * kColumnTiles == kSize);
  const int lane = lane_of_warp();
  const T* b_rows = b.data + (b_row + lane % 16) * kSize;
  const int turn = lane / 16 ^ lane % 8;
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {
      std::uint32_t right[4];
      ptx::load_4_matrices_transposed(right, b_rows + 16 * k * kSize + (n ^ turn) * 8);
      const std::uint32_t pairs[2][2] = {{right[0], right[1]}, {right[2], right[3]}};
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        ptx::multiply_add_16x8x16<T>(result[t][n], left[t][k], pairs[0]);
        ptx::multiply_add_16x8x16<T>(result[t][n + 1], left[t][k], pairs[1]);
      }
    }
  }
}

/// Minus infinity for every key that a query does not see. first_query, first_key: of the matrix.
template <bool kKeysAreRows, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void hide_unseen(float (&scores)[kRowTiles][kColumnTiles][4], const Visibility& visibility,
                                            int first_query, int first_key) {
  constexpr int kQueryTiles = kKeysAreRows ? kColumnTiles : kRowTiles;
  constexpr int kKeyTiles = kKeysAreRows ? kRowTiles : kColumnTiles;
#pragma unroll
  for (int q = 0; q < 2 * kQueryTiles; ++q) {
    const int query = first_query + (kKeysAreRows ? q / 2 * 8 + column_of(q % 2) : q / 2 * 16 + row_of(q % 2 * 2));
    const KeyRange range = visibility.range(std::min(query, visibility.queries - 1));
#pragma unroll
    for (int k = 0; k < 2 * kKeyTiles; ++k) {
      const int key = first_key + (kKeysAreRows ? k / 2 * 16 + row_of(k % 2 * 2) : k / 2 * 8 + column_of(k % 2));
      float& score = kKeysAreRows ? scores[k / 2][q / 2][k % 2 * 2 + q % 2] : scores[q / 2][k / 2][q % 2 * 2 + k % 2];
      if (!range.has(key)) score = -kInfinity;
    }
  }
}

/// Products become capped scores in units of log2: softcap · log2(e) · tanh(product · scale / softcap). factor is
/// scale · log2(e).
template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void cap_scores(float (&scores)[kRowTiles][kColumnTiles][4], float factor, float softcap) {
  const float largest = softcap * kLog2E, share = factor * kLn2 / softcap;
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[t][n][i] = largest * tanhf(scores[t][n][i] * share);
    }
  }
}

/// score = factor · score + slope · (key - query position), ALiBi. first_distance: of the matrix's first element.
template <bool kKeysAreRows, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void add_slope(float (&scores)[kRowTiles][kColumnTiles][4], float factor, float slope,
                                          int first_distance) {
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int across = 8 * n + column_of(i) - (16 * t + row_of(i));
        const int distance = first_distance + (kKeysAreRows ? -across : across);
        scores[t][n][i] = scores[t][n][i] * factor + slope * static_cast<float>(distance);
      }
    }
  }
}

/// score += the bias of its distance. head: of the distances' bias. first_distance: of the matrix's first element.
template <bool kKeysAreRows, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void add_distance_bias(float (&scores)[kRowTiles][kColumnTiles][4],
                                                  const Distances& distances, const float* head, int first_distance) {
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int across = 8 * n + column_of(i) - (16 * t + row_of(i));
        scores[t][n][i] += distances.at(head, first_distance + (kKeysAreRows ? -across : across));
      }
    }
  }
}

/// The elements of a matrix of scores that dropout keeps: bit 4 n + i of word t of a lane for its element [t][n][i].
template <int kRowTiles, int kColumnTiles>
struct Kept {
  static_assert(kColumnTiles <= 8);
  std::uint32_t bits[kRowTiles];

  static __device__ Kept everything() {
    Kept result;
    for (std::uint32_t& word : result.bits) word = ~0u;
    return result;
  }
  __device__ bool has(int t, int n, int i) const { return (bits[t] >> (4 * n + i) & 1) != 0; }
};

/// The warp's draws go through `exchange`, separate shared memory for 256 of them: a draw of eight keys is one
/// lane's, but four or eight lanes' to use.
template <bool kKeysAreRows, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ Kept<kRowTiles, kColumnTiles> draw_kept(const Drops& drops, int sample, int head,
                                                                   const Visibility& visibility, int first_query,
                                                                   int first_key, std::uint16_t* exchange) {
  Kept<kRowTiles, kColumnTiles> kept{};
  const int lane = lane_of_warp();
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {  // 16 queries by 16 keys: 32 draws of eight
      const int query = first_query + (kKeysAreRows ? 8 * n : 16 * t) + lane % 16;
      const int key = first_key + (kKeysAreRows ? 16 * t : 8 * n) + lane / 16 * 8;
      const uint4 draws = drops.draws(sample, head, std::min(query, visibility.queries - 1), key / 8);
      __syncwarp();
      *reinterpret_cast<uint4*>(exchange + 8 * lane) = draws;
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int across = i / 4 * 8 + column_of(i % 4), down = row_of(i % 4);
        const int q = kKeysAreRows ? across : down, k = kKeysAreRows ? down : across;
        const bool keep = exchange[(k / 8 * 16 + q) * 8 + k % 8] >= drops.threshold;
        kept.bits[t] |= static_cast<std::uint32_t>(keep) << (4 * n + i);
      }
    }
  }
  return kept;
}
inline constexpr int kExchangedDraws = 256;

/// to[row] = factors[row] · values[row] for the first `rows` rows of a matrix, through rows from staging_row on of a
/// tile that no other warp uses any more.
template <int kRowTiles, int kColumnTiles, class T, int kSize>
__device__ __forceinline__ void store_rows(const float (&values)[kRowTiles][kColumnTiles][4],
                                           const float (&factors)[kRowTiles][2], Tile<T, kSize> staging,
                                           int staging_row, Rows<T> to, int rows, int size, bool vectors) {
  using Place = Tile<T, kSize>;
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        T* place = staging.chunk(staging_row + 16 * t + row_of(2 * half), n) + column_of(0);
        *reinterpret_cast<std::uint32_t*>(place) =
            ptx::pack<T>(values[t][n][2 * half] * factors[t][half], values[t][n][2 * half + 1] * factors[t][half]);
      }
    }
  }
  __syncwarp();
  const int chunk = lane_of_warp() % Place::kChunks, column = chunk * Place::kChunk;
#pragma unroll 1
  for (int row = lane_of_warp() / Place::kChunks; row < 16 * kRowTiles; row += kWarpThreads / Place::kChunks) {
    if (row >= rows || column >= size) continue;
    const T* from = staging.chunk(staging_row + row, chunk);
    T* place = to.row(row) + column;
    if (vectors) {
      store_vector(place, load_vector(from));
    } else {
      for (int i = 0; i < Place::kChunk && column + i < size; ++i) place[i] = from[i];
    }
  }
}

}  // namespace megatron::cuda_attention
