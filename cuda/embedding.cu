// Look-up of rows and its gradient. The gradient adds dy's rows in order of i without atomics on floats: the ids are
// sorted stably, by integer work alone, and each row of the table then goes through its own i's.
#include <algorithm>
#include <bit>
#include <utility>

#include "backend/ops/arguments.h"
#include "cuda/cuda_check.h"
#include "cuda/cuda_ops.h"
#include "cuda/kernel.cuh"

namespace megatron {

namespace {

/// A warp a token.
template <class T, int width>
__global__ void __launch_bounds__(kBlockThreads)
    forward_kernel(const std::int32_t* ids, const T* weight, T* y, std::int64_t n, std::int64_t first_row,
                   std::int64_t rows, std::int64_t columns, bool accumulate) {
  const std::int64_t i = first_element() / kWarpThreads;
  if (i >= n) return;
  const std::int64_t row = ids[i] - first_row;
  const bool here = row >= 0 && row < rows;
  if (accumulate && !here) return;
  T* to = y + i * columns;
  const T* from = weight + row * columns;
  for (std::int64_t column = threadIdx.x % kWarpThreads * width; column < columns; column += kWarpThreads * width) {
    Vector<T, width> values{};
    if (here) values = load_vector<width>(from + column);
    if (accumulate) {
      const auto added = to_floats(values);
      auto sum = load_floats<width>(to + column);
      for (int k = 0; k < width; ++k) sum.values[k] += added.values[k];
      values = narrow_floats<T>(sum);
    }
    store_global(to + column, values);
  }
}

// ---- a stable sort of (key, i) by one digit of the key after the other, least significant first ---------------------

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr int kSortTile = 2048;  ///< elements that a block of the sort goes through

/// key = the row where it is here, else `rows`, which sorts after all.
__global__ void __launch_bounds__(kBlockThreads)
    make_keys_kernel(const std::int32_t* ids, std::int64_t first_row, std::int64_t rows, std::int32_t* keys,
                     std::int32_t* order, std::int64_t n) {
  for (std::int64_t i = first_element(); i < n; i += element_stride()) {
    const std::int64_t row = ids[i] - first_row;
    keys[i] = static_cast<std::int32_t>(row >= 0 && row < rows ? row : rows);
    order[i] = static_cast<std::int32_t>(i);
  }
}

__device__ __forceinline__ int digit_of(std::int32_t key, int shift) {
  return (key >> shift) & (kDigits - 1);
}

/// table[digit, tile] = how many keys of the tile have the digit.
__global__ void __launch_bounds__(kDigits)
    count_digits_kernel(const std::int32_t* keys, int shift, std::int32_t* table, std::int64_t n) {
  __shared__ std::int32_t counts[kDigits];
  counts[threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kSortTile;
  for (int i = static_cast<int>(threadIdx.x); i < kSortTile && begin + i < n; i += kDigits) {
    atomicAdd(&counts[digit_of(keys[begin + i], shift)], 1);  // integers: the same sum in any order
  }
  __syncthreads();
  table[threadIdx.x * gridDim.x + blockIdx.x] = counts[threadIdx.x];
}

/// table[j] becomes the sum of the elements in front of it. One block.
__global__ void __launch_bounds__(1024) exclusive_sums_kernel(std::int32_t* table, std::int64_t count) {
  __shared__ std::int32_t of_warps[kWarpThreads];
  const unsigned warp = threadIdx.x / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
  const auto sums_up_to = [lane](std::int32_t value) {  // over the lanes up to this one
    for (int lanes = 1; lanes < static_cast<int>(kWarpThreads); lanes *= 2) {
      const std::int32_t below = __shfl_up_sync(kFullWarp, value, lanes);
      if (lane >= lanes) value += below;
    }
    return value;
  };
  std::int32_t in_front = 0;
  for (std::int64_t base = 0; base < count; base += blockDim.x) {
    const std::int64_t j = base + threadIdx.x;
    const std::int32_t own = j < count ? table[j] : 0, of_warp = sums_up_to(own);
    if (lane == static_cast<int>(kWarpThreads) - 1) of_warps[warp] = of_warp;
    __syncthreads();
    const std::int32_t of_block = sums_up_to(of_warps[lane]);
    const std::int32_t warps_in_front = __shfl_sync(kFullWarp, of_block, static_cast<int>(warp == 0 ? 0 : warp - 1));
    if (j < count) table[j] = in_front + (warp == 0 ? 0 : warps_in_front) + of_warp - own;
    in_front += __shfl_sync(kFullWarp, of_block, static_cast<int>(kWarpThreads) - 1);
    __syncthreads();  // before of_warps is written again
  }
}

/// Moves the tile's pairs to where table[digit, tile] says. A warp goes through its tile in order; lanes with the same
/// digit take places in order of their numbers.
__global__ void __launch_bounds__(kWarpThreads)
    scatter_kernel(const std::int32_t* keys, const std::int32_t* order, int shift, const std::int32_t* table,
                   std::int32_t* sorted_keys, std::int32_t* sorted_order, std::int64_t n) {
  __shared__ std::int32_t places[kDigits];
  const int lane = static_cast<int>(threadIdx.x);
  for (int digit = lane; digit < kDigits; digit += static_cast<int>(kWarpThreads)) {
    places[digit] = table[static_cast<std::int64_t>(digit) * gridDim.x + blockIdx.x];
  }
  __syncwarp();
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kSortTile;
  const std::int64_t end = begin + kSortTile < n ? begin + kSortTile : n;
#pragma unroll 4
  for (std::int64_t first = begin; first < end; first += kWarpThreads) {
    const std::int64_t i = first + lane;
    const bool here = i < end;
    const std::int32_t key = here ? keys[i] : 0;
    const int digit = here ? digit_of(key, shift) : kDigits;  // lanes past the end only match each other
    const unsigned same = __match_any_sync(kFullWarp, digit);
    const int rank = __popc(same & ((1u << lane) - 1));
    const std::int32_t place = here ? places[digit] + rank : 0;
    __syncwarp();
    if (here && rank == 0) places[digit] += __popc(same);
    __syncwarp();
    if (here) {
      sorted_keys[place] = key;
      sorted_order[place] = order[i];
    }
  }
}

/// begin[row] and end[row]: where a row's i's lie among the sorted ones. Both zero beforehand.
__global__ void __launch_bounds__(kBlockThreads)
    find_rows_kernel(const std::int32_t* keys, std::int64_t rows, std::int32_t* begin, std::int32_t* end,
                     std::int64_t n) {
  for (std::int64_t p = first_element(); p < n; p += element_stride()) {
    const std::int32_t key = keys[p];
    if (key >= rows) continue;
    if (p == 0 || keys[p - 1] != key) begin[key] = static_cast<std::int32_t>(p);
    if (p + 1 == n || keys[p + 1] != key) end[key] = static_cast<std::int32_t>(p + 1);
  }
}

// ---- adding ---------------------------------------------------------------------------------------------------------

/// Adds `batch` rows of dy, from[order[p]...], in order; their loads are under way together.
template <int batch, int width, class T>
__device__ __forceinline__ void add_batch(Vector<float, width>& sum, const T* from, const std::int32_t* order,
                                          std::int32_t p, std::int32_t end, std::int64_t columns) {
  Vector<T, width> loaded[batch];
#pragma unroll
  for (int k = 0; k < batch; ++k) {
    if (p + k < end) loaded[k] = load_vector<width>(from + order[p + k] * columns);
  }
#pragma unroll
  for (int k = 0; k < batch; ++k) {
    if (p + k >= end) continue;
    const auto values = to_floats(loaded[k]);
    for (int i = 0; i < width; ++i) sum.values[i] += values.values[i];
  }
}

constexpr int kAddingThreads = 512;

/// A block takes one row of the table after the other. Frequent rows decide the time of the whole: hence long batches.
template <class T, int width>
__global__ void __launch_bounds__(kAddingThreads)
    add_rows_kernel(const T* dy, const std::int32_t* order, const std::int32_t* begin, const std::int32_t* end,
                    float* dweight, std::int64_t rows, std::int64_t columns) {
  constexpr int long_batch = kHalf<T> ? 16 : 8, short_batch = 4;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int32_t first = begin[row], last = end[row];
    if (first == last) continue;
    for (std::int64_t column = threadIdx.x * width; column < columns; column += blockDim.x * width) {
      float* to = dweight + row * columns + column;
      auto sum = load_vector<width>(to);
      std::int32_t p = first;
      for (; p + long_batch <= last; p += long_batch) add_batch<long_batch>(sum, dy + column, order, p, last, columns);
      for (; p < last; p += short_batch) add_batch<short_batch>(sum, dy + column, order, p, last, columns);
      store_global(to, sum);
    }
  }
}

LaunchShape add_rows_shape(std::int64_t rows, std::int64_t columns, int width, int multiprocessors) {
  const std::int64_t warps = (columns + width * kWarpThreads - 1) / (width * kWarpThreads);
  const std::int64_t threads = std::min<std::int64_t>(warps * kWarpThreads, kAddingThreads);
  return {.grid = dim3(static_cast<unsigned>(std::min<std::int64_t>(rows, 16 * multiprocessors))),
          .block = dim3(static_cast<unsigned>(threads))};
}

/// Where the sort works: begin and end of each row's part of `order` are its results.
struct SortedIds {
  std::int32_t *keys, *order, *other_keys, *other_order, *table, *begin, *end;
  std::int64_t n, rows, tiles;

  SortedIds(std::int64_t n_, std::int64_t rows_) : n(n_), rows(rows_), tiles((n_ + kSortTile - 1) / kSortTile) {}
  std::size_t bytes() const {
    return static_cast<std::size_t>(4 * n + tiles * kDigits + 2 * rows) * sizeof(std::int32_t);
  }
  void place(std::byte* memory) {
    keys = reinterpret_cast<std::int32_t*>(memory);
    order = keys + n;
    other_keys = order + n;
    other_order = other_keys + n;
    table = other_order + n;
    begin = table + tiles * kDigits;
    end = begin + rows;
  }
  void sort(cudaStream_t stream, const std::int32_t* ids, std::int64_t first_row) {
    const LaunchShape over_ids = elementwise_shape(n), one_block{.grid = dim3(1), .block = dim3(1024)};
    const LaunchShape by_tiles{.grid = dim3(static_cast<unsigned>(tiles)), .block = dim3(kDigits)};
    const LaunchShape warps_by_tiles{.grid = by_tiles.grid, .block = dim3(kWarpThreads)};
    launch(stream, over_ids, make_keys_kernel, ids, first_row, rows, keys, order, n);
    const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows)));
    for (int shift = 0; shift < bits; shift += kDigitBits) {
      launch(stream, by_tiles, count_digits_kernel, keys, shift, table, n);
      launch(stream, one_block, exclusive_sums_kernel, table, tiles * kDigits);
      launch(stream, warps_by_tiles, scatter_kernel, keys, order, shift, table, other_keys, other_order, n);
      std::swap(keys, other_keys);
      std::swap(order, other_order);
    }
    CUDA_CHECK(cudaMemsetAsync(begin, 0, static_cast<std::size_t>(2 * rows) * sizeof(std::int32_t), stream));
    launch(stream, over_ids, find_rows_kernel, keys, rows, begin, end, n);
  }
};

}  // namespace

void CudaOps::embedding_forward(const EmbeddingForwardArgs& args) {
  with_activation_type("embedding_forward", args.y.dtype(), [&]<class T>(T) {
    const RowsOf table(args.weight);
    const std::int64_t n = args.ids.elements(), columns = table.columns;
    const std::int32_t* ids = elements_of<std::int32_t>("embedding_forward", args.ids, n);
    const T* weight = elements_of<T>("embedding_forward", args.weight, table.elements());
    T* y = elements_of<T>("embedding_forward", args.y, n * columns);
    if (n * columns == 0) return;
    const auto kernel = vectorizable<T>(columns, weight, y) ? forward_kernel<T, Vector<T>::size> : forward_kernel<T, 1>;
    constexpr std::int64_t tokens = kBlockThreads / kWarpThreads;
    launch(stream_, {.grid = dim3(static_cast<unsigned>((n + tokens - 1) / tokens)), .block = dim3(kBlockThreads)},
           kernel, ids, weight, y, n, args.first_row, table.rows, columns, args.accumulate);
  });
}

void CudaOps::embedding_backward(const EmbeddingBackwardArgs& args) {
  with_activation_type("embedding_backward", args.dy.dtype(), [&]<class T>(T) {
    const RowsOf table(args.dweight);
    const std::int64_t n = args.ids.elements(), columns = table.columns, rows = table.rows;
    const std::int32_t* ids = elements_of<std::int32_t>("embedding_backward", args.ids, n);
    const T* dy = elements_of<T>("embedding_backward", args.dy, n * columns);
    float* dweight = elements_of<float>("embedding_backward", args.dweight, table.elements());
    internal_check(n < std::int64_t{1} << 31 && rows < std::int64_t{1} << 31, "embedding_backward: 2^31 rows", n, rows);
    if (n * columns == 0 || rows == 0) return;

    SortedIds sorted(n, rows);
    sorted.place(scratch(sorted.bytes()));
    sorted.sort(stream_, ids, args.first_row);
    // Four columns a thread: more threads for a row than vectors of 16 bytes would give 16-bit elements.
    const bool vectors = vectorizable<float>(columns, dy, dweight);
    launch(stream_, add_rows_shape(rows, columns, vectors ? 4 : 1, device_.multiprocessors()),
           vectors ? add_rows_kernel<T, 4> : add_rows_kernel<T, 1>, dy, sorted.order, sorted.begin, sorted.end, dweight,
           rows, columns);
  });
}

}  // namespace megatron
