// The table of exchanges: ways for attention to see rows that other context ranks have (parallel.context_exchange).
// Their functions are in the row of the same name in models/attention/divided_attention.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "base/core/named_rows.h"

namespace megatron {

enum class AttentionExchange {
  gathered,  ///< each rank gathers the keys and values of all
  ulysses,   ///< each rank has all rows of a share of the heads (Jacobs et al. 2023)
  ring,      ///< keys and values go from rank to rank (Liu et al. 2023)
};

/// One layer's attention on one tensor rank.
struct ExchangeSizes {
  std::int64_t ranks = 1;                             ///< context ranks
  std::int64_t rows = 0;                              ///< whole sequences', all samples' together
  std::int64_t heads = 0, groups = 0, head_size = 0;  ///< queries'; keys' and values'
  std::int64_t element = 4;                           ///< bytes

  bool heads_divide() const { return heads % ranks == 0; }
  /// Whether ranks have whole groups, or whole groups have ranks that hold copies.
  bool groups_divide() const { return groups % ranks == 0 || ranks % groups == 0; }
};

struct AttentionExchangeRow {
  AttentionExchange kind;
  std::string_view name;
  bool divides_heads;              ///< needs both of what ExchangeSizes says of divisions
  bool whole_rows;                 ///< attention is to be told of whole sequences: their positions, their documents
  std::int64_t rows_with_dropout;  ///< that divide a chunk where attention has dropout
  /// That a rank sends for a layer, forward and backward together.
  double (*bytes)(const ExchangeSizes& sizes);

  bool fits(const ExchangeSizes& sizes) const {
    return !divides_heads || (sizes.heads_divide() && sizes.groups_divide());
  }
};

namespace attention_exchange {

/// (c - 1) / c · s · d · element: of one head's rows, the part that others have.
inline double others_rows(const ExchangeSizes& sizes) {
  return static_cast<double>(sizes.ranks - 1) / static_cast<double>(sizes.ranks) *
         static_cast<double>(sizes.rows * sizes.head_size * sizes.element);
}
/// Keys and values are gathered twice, and their gradients scattered.
inline double gathered_bytes(const ExchangeSizes& sizes) {
  return 6 * others_rows(sizes) * static_cast<double>(sizes.groups);
}
/// Queries, keys, values and output once in each direction, as many of a rank's rows as other ranks have heads. Groups
/// that are fewer than the ranks are sent to each.
inline double ulysses_bytes(const ExchangeSizes& sizes) {
  const double heads = static_cast<double>(sizes.heads + std::max(sizes.groups, sizes.ranks));
  return 4 * others_rows(sizes) * heads / static_cast<double>(sizes.ranks);
}

/// Keys and values are passed on twice, and their gradients in f32.
inline double ring_bytes(const ExchangeSizes& sizes) {
  const double gradients = 2 * 4 / static_cast<double>(sizes.element);
  return (4 + gradients) * others_rows(sizes) * static_cast<double>(sizes.groups);
}

}  // namespace attention_exchange

inline constexpr std::array kAttentionExchanges{
    AttentionExchangeRow{.kind = AttentionExchange::gathered,
                         .name = "gathered",
                         .divides_heads = false,
                         .whole_rows = false,
                         .rows_with_dropout = 1,
                         .bytes = attention_exchange::gathered_bytes},
    AttentionExchangeRow{.kind = AttentionExchange::ulysses,
                         .name = "ulysses",
                         .divides_heads = true,
                         .whole_rows = true,
                         .rows_with_dropout = 1,
                         .bytes = attention_exchange::ulysses_bytes},
    AttentionExchangeRow{.kind = AttentionExchange::ring,
                         .name = "ring",
                         .divides_heads = false,
                         .whole_rows = false,
                         .rows_with_dropout = 8,
                         .bytes = attention_exchange::ring_bytes},
};

/// The key's value that leaves the choice to fewest_bytes().
inline constexpr std::string_view kAutomaticExchange = "auto";

/// The exchange that fits and whose ranks send least; the first of equal ones.
inline const AttentionExchangeRow& fewest_bytes(const ExchangeSizes& sizes) {
  const AttentionExchangeRow* best = &kAttentionExchanges.front();  // fits always
  for (const AttentionExchangeRow& row : kAttentionExchanges) {
    if (row.fits(sizes) && row.bytes(sizes) < best->bytes(sizes)) best = &row;
  }
  return *best;
}

}  // namespace megatron
