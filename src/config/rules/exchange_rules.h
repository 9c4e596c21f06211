// The exchange of a run's context ranks: the row of base/core/attention_exchanges.h that parallel.context_exchange
// means.
#pragma once

#include "base/core/attention_exchanges.h"
#include "config/schema/config.h"

namespace megatron {

/// Computes the sizes of one layer's attention on a tensor rank, for one sample. Heads that tensor ranks do not divide
/// are rounded up.
ExchangeSizes exchange_sizes(const Config& config);

/// The row that is named, or with "auto" the one whose ranks send least.
const AttentionExchangeRow& exchange_of(const Config& config);

/// Sequences are multiples of this where context ranks divide them.
std::int64_t exchange_unit(const Config& config);

}  // namespace megatron
