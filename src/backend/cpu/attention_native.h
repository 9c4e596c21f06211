// Attention's products of bf16 by instructions of the processor (native_tiles.h): the elements as they are, and
// probabilities and gradients of scores rounded to bf16, summed in f32. Members are those of attention_widened.h.
//
// Tiles of keys begin at multiples of a tile's depth, so that the order of sums does not depend on the other queries of
// the call. Keys that no query sees count for nothing: in a cache they need not be numbers.
#pragma once

#include "backend/cpu/attention_tile.h"
#include "backend/cpu/native_tiles.h"

namespace megatron::attention {

/// Products of packed matrices, for as long as it lives on a thread.
class NativeProducts {
 public:
  explicit NativeProducts(const native::Kernel& kernel) : kernel_(kernel) { kernel_.begin(); }
  ~NativeProducts() { kernel_.end(); }
  NativeProducts(const NativeProducts&) = delete;
  NativeProducts& operator=(const NativeProducts&) = delete;

  /// Panels of a packed matrix, `stride` elements from one to the next.
  struct Packed {
    const BFloat16* tiles;
    std::int64_t panels, stride;
  };

  /// sums[panels of a, panels of b] = a · b, added to sums if `add`; `depth` in tiles.
  void multiply(Packed a, Packed b, std::int64_t depth, native::Sums sums, bool add) const {
    native::Panels panels{
        .a = {}, .b = {}, .a_stride = a.stride, .b_stride = b.stride, .rows = 0, .columns = 0, .depth = depth};
    for (std::int64_t j = 0; j < b.panels; j += kernel_.columns) {
      panels.b = b.tiles + j * b.stride;
      panels.columns = std::min(kernel_.columns, b.panels - j);
      for (std::int64_t i = 0; i < a.panels; i += kernel_.rows) {
        panels.a = a.tiles + i * a.stride;
        panels.rows = std::min(kernel_.rows, a.panels - i);
        kernel_.multiply(panels, {sums.data + (i * sums.stride + j) * native::kWidth, sums.stride}, add);
      }
    }
  }

 private:
  const native::Kernel& kernel_;
};

/// Tiles of the parts of an attention problem.
struct NativeExtents {
  explicit NativeExtents(const AttentionProblem& problem)
      : size(problem.head_size),
        panels(native::panels_of(size)),
        depth(native::tiles_of(size)),
        of_queries(kQueryBlock / native::kWidth * depth),
        of_keys(native::panels_of(problem.keys) * depth),
        of_values(panels * native::tiles_of(problem.keys)),
        keys_stride(native::tiles_of(problem.keys) * native::kDepth + native::kWidth) {}

  static constexpr std::int64_t kOfScores = kQueryBlock * kKeyBlock / native::kTileElements;
  static_assert(kQueryBlock == native::kDepth && kKeyBlock % native::kDepth == 0);
  static constexpr std::int64_t floats(std::int64_t tiles) { return tiles * native::kTileElements / 2; }

  std::int64_t size, panels, depth;             // head size in elements, in panels, in tiles of depth
  std::int64_t of_queries, of_keys, of_values;  // tiles: a block's rows; all keys with depth of heads, and the reverse
  std::int64_t keys_stride;                     // floats from row to row of sums for all keys; no power of two
};

inline BFloat16* take_tiles(Pieces& pieces, std::int64_t tiles) {
  return reinterpret_cast<BFloat16*>(pieces.take(NativeExtents::floats(tiles)));
}

/// Keys of a sample, packed: those that some query sees, from a multiple of a tile's depth on.
class NativeKeys {
 public:
  using Packed = NativeProducts::Packed;

  NativeKeys(const AttentionProblem& problem) : problem_(problem), extents_(problem) {}

  const NativeExtents& extents() const { return extents_; }
  std::int64_t first() const { return first_; }
  void choose_sample(std::int64_t sample) {
    seen_ = problem_.seen(sample);
    first_ = first_key(seen_.low);
  }
  static std::int64_t first_key(std::int64_t low) { return low - low % native::kDepth; }

  /// Packs keys or values with the head's elements as depth.
  void pack_by_key(Rows<const BFloat16> x, BFloat16* tiles) const {
    native::pack_columns(native::Source<BFloat16>{x.data + first_ * x.stride, x.stride, true, count(), extents_.size},
                         tiles);
  }
  /// With keys as depth, 0 before the first that is seen: probabilities of 0 would not undo a NaN.
  void pack_by_element(Rows<const BFloat16> x, BFloat16* tiles) const {
    native::pack_columns(native::Source<BFloat16>{x.data + first_ * x.stride, x.stride, false, extents_.size, count()},
                         tiles);
    for (std::int64_t panel = 0; panel < extents_.panels; ++panel) {
      BFloat16* tile = tiles + panel * native::tiles_of(count()) * native::kTileElements;
      for (std::int64_t key = 0; key < seen_.low - first_; ++key) {
        for (std::int64_t i = 0; i < native::kWidth; ++i) tile[key / 2 * native::kDepth + 2 * i + key % 2] = {};
      }
    }
  }
  /// Packed keys or values of a tile.
  Packed by_key(KeyRange tile, const BFloat16* tiles) const {
    const std::int64_t stride = extents_.depth * native::kTileElements;
    return {tiles + offset(tile) / native::kWidth * stride, native::panels_of(tile.high - tile.low), stride};
  }
  Packed by_element(KeyRange tile, const BFloat16* tiles) const {
    return {tiles + offset(tile) / native::kDepth * native::kTileElements, extents_.panels,
            native::tiles_of(count()) * native::kTileElements};
  }
  std::int64_t offset(KeyRange tile) const { return tile.low - first_; }
  std::int64_t count() const { return seen_.high - first_; }

 private:
  const AttentionProblem& problem_;
  NativeExtents extents_;
  KeyRange seen_;
  std::int64_t first_ = 0;  // that is packed
};

/// A block of queries' rows, with the head's elements as depth.
inline void pack_queries(std::int64_t rows, std::int64_t size, Rows<const BFloat16> x, BFloat16* tiles) {
  native::pack_rows(native::Source<BFloat16>{x.data, x.stride, true, rows, size}, tiles);
}

/// A tile's scores or what became of them, [rows, width]: packed as rows, with keys as depth.
inline NativeProducts::Packed pack_scores(std::int64_t rows, std::int64_t width, const float* scores, BFloat16* tiles) {
  native::pack_rows(native::Source<float>{scores, kTileStride, true, rows, width}, tiles);
  return {tiles, native::panels_of(rows), native::tiles_of(width) * native::kTileElements};
}
/// Packed as columns, with queries as depth.
inline NativeProducts::Packed pack_scores_by_key(std::int64_t rows, std::int64_t width, const float* scores,
                                                 BFloat16* tiles) {
  native::pack_columns(native::Source<float>{scores, kTileStride, false, width, rows}, tiles);
  return {tiles, native::panels_of(width), native::kTileElements};
}

class NativeForward {
 public:
  using Element = BFloat16;
  static std::int64_t row_stride(const AttentionProblem& problem) {
    return NativeExtents(problem).panels * native::kWidth;
  }
  static std::int64_t floats(const AttentionProblem& problem) {
    const NativeExtents extents(problem);
    return NativeExtents::floats(extents.of_queries + extents.of_keys + extents.of_values + NativeExtents::kOfScores);
  }

  NativeForward(const AttentionProblem& problem, float scale, Pieces& pieces, const native::Kernel& kernel)
      : products_(kernel), all_(problem), scale_(scale) {
    const NativeExtents& extents = all_.extents();
    queries_ = take_tiles(pieces, extents.of_queries);
    keys_ = take_tiles(pieces, extents.of_keys);
    values_ = take_tiles(pieces, extents.of_values);
    weights_ = take_tiles(pieces, NativeExtents::kOfScores);
  }

  void load_keys(std::int64_t sample, Rows<const BFloat16> keys, Rows<const BFloat16> values) {
    all_.choose_sample(sample);
    all_.pack_by_key(keys, keys_);
    all_.pack_by_element(values, values_);
  }

  void load_queries(std::int64_t rows, Rows<const BFloat16> queries) {
    pack_queries(rows, all_.extents().size, queries, queries_);
  }

  std::int64_t first_key(std::int64_t low) const { return all_.first_key(low); }

  void multiply_keys(std::int64_t rows, KeyRange tile, float* scores) const {
    const std::int64_t depth = all_.extents().depth;
    products_.multiply({queries_, native::panels_of(rows), depth * native::kTileElements}, all_.by_key(tile, keys_),
                       depth, {scores, kTileStride}, false);
    copy_rows(rows, tile.high - tile.low, scale_ * kLog2E, Rows<float>{scores, kTileStride},
              Rows<float>{scores, kTileStride});
  }

  void add_values(std::int64_t rows, KeyRange tile, const float* probabilities, float* output) {
    const std::int64_t width = tile.high - tile.low;
    products_.multiply(pack_scores(rows, width, probabilities, weights_), all_.by_element(tile, values_),
                       native::tiles_of(width), {output, all_.extents().panels * native::kWidth}, true);
  }

 private:
  NativeProducts products_;
  NativeKeys all_;
  float scale_;
  BFloat16 *queries_, *keys_, *values_, *weights_;
};

/// Gradients of keys and values are summed transposed, [head size, keys]: so scores need not be.
class NativeBackward {
 public:
  using Element = BFloat16;
  static std::int64_t row_stride(const AttentionProblem& problem) { return NativeForward::row_stride(problem); }
  static std::int64_t floats(const AttentionProblem& problem) {
    const NativeExtents extents(problem);
    return NativeExtents::floats(2 * extents.of_queries + 2 * extents.panels + 2 * extents.of_keys + extents.of_values +
                                 NativeExtents::kOfScores) +
           2 * row_stride(problem) * extents.keys_stride;
  }

  NativeBackward(const AttentionProblem& problem, float scale, Pieces& pieces, const native::Kernel& kernel)
      : products_(kernel), problem_(problem), all_(problem), scale_(scale) {
    const NativeExtents& extents = all_.extents();
    for (BFloat16** piece : {&queries_, &doutput_}) *piece = take_tiles(pieces, extents.of_queries);
    for (BFloat16** piece : {&queries_transposed_, &doutput_transposed_}) *piece = take_tiles(pieces, extents.panels);
    for (BFloat16** piece : {&keys_, &values_}) *piece = take_tiles(pieces, extents.of_keys);
    keys_by_element_ = take_tiles(pieces, extents.of_values);
    weights_ = take_tiles(pieces, NativeExtents::kOfScores);
    for (float** piece : {&dkeys_, &dvalues_}) *piece = pieces.take(row_stride(problem) * extents.keys_stride);
  }

  void load_keys(std::int64_t sample, Rows<const BFloat16> keys, Rows<const BFloat16> values) {
    all_.choose_sample(sample);
    all_.pack_by_key(keys, keys_);
    all_.pack_by_key(values, values_);
    all_.pack_by_element(keys, keys_by_element_);
    for (float* sums : {dkeys_, dvalues_}) std::fill_n(sums, row_stride(problem_) * all_.extents().keys_stride, 0.0f);
  }

  void load_queries(std::int64_t rows, Rows<const BFloat16> queries, Rows<const BFloat16> doutput) {
    const std::int64_t size = all_.extents().size;
    pack_queries(rows, size, queries, queries_);
    pack_queries(rows, size, doutput, doutput_);
    native::pack_rows(native::Source<BFloat16>{queries.data, queries.stride, false, size, rows}, queries_transposed_);
    native::pack_rows(native::Source<BFloat16>{doutput.data, doutput.stride, false, size, rows}, doutput_transposed_);
  }

  std::int64_t first_key(std::int64_t low) const { return all_.first_key(low); }

  void multiply_keys(std::int64_t rows, KeyRange tile, float* scores, float* dprobabilities) const {
    const std::int64_t depth = all_.extents().depth, stride = depth * native::kTileElements;
    products_.multiply({queries_, native::panels_of(rows), stride}, all_.by_key(tile, keys_), depth,
                       {scores, kTileStride}, false);
    products_.multiply({doutput_, native::panels_of(rows), stride}, all_.by_key(tile, values_), depth,
                       {dprobabilities, kTileStride}, false);
    copy_rows(rows, tile.high - tile.low, scale_ * kLog2E, Rows<float>{scores, kTileStride},
              Rows<float>{scores, kTileStride});
  }

  void add_gradients(std::int64_t rows, KeyRange tile, const float* probabilities, const float* dscores,
                     float* dqueries) {
    const std::int64_t width = tile.high - tile.low;
    add_transposed(doutput_transposed_, pack_scores_by_key(rows, width, probabilities, weights_), tile, dvalues_);
    add_transposed(queries_transposed_, pack_scores_by_key(rows, width, dscores, weights_), tile, dkeys_);
    products_.multiply(pack_scores(rows, width, dscores, weights_), all_.by_element(tile, keys_by_element_),
                       native::tiles_of(width), {dqueries, row_stride(problem_)}, true);
  }

  void store_key_gradients(Rows<BFloat16> dkeys, Rows<BFloat16> dvalues) const {
    store(dkeys_, scale_, dkeys);
    store(dvalues_, 1.0f, dvalues);
  }

 private:
  void add_transposed(const BFloat16* rows, NativeProducts::Packed weights, KeyRange tile, float* sums) const {
    const NativeExtents& extents = all_.extents();
    products_.multiply({rows, extents.panels, native::kTileElements}, weights, 1,
                       {sums + all_.offset(tile), extents.keys_stride}, true);
  }

  void store(const float* sums, float factor, Rows<BFloat16> to) const {
    const NativeExtents& extents = all_.extents();
    const std::int64_t first = all_.first();
    for (std::int64_t key = 0; key < problem_.keys; ++key) {
      if (key < first || key >= first + all_.count()) std::fill_n(to.data + key * to.stride, extents.size, BFloat16{});
    }
    for (std::int64_t key = 0; key < all_.count(); key += native::kWidth) {
      for (std::int64_t i = 0; i < extents.size; i += native::kWidth) {
        native::store_transposed({sums + i * extents.keys_stride + key, extents.keys_stride}, extents.size - i,
                                 all_.count() - key, factor, to.data + (first + key) * to.stride + i, to.stride);
      }
    }
  }

  NativeProducts products_;
  const AttentionProblem& problem_;
  NativeKeys all_;
  float scale_;
  BFloat16 *queries_, *doutput_, *queries_transposed_, *doutput_transposed_;
  BFloat16 *keys_, *values_, *keys_by_element_, *weights_;
  float *dkeys_, *dvalues_;
};

}  // namespace megatron::attention
