// Attention where context ranks divide the sequences: a rank's queries see the keys and values of all, by the exchange
// that the pass names (base/core/attention_exchanges.h).
#pragma once

#include "models/attention/attention_exchange.h"

namespace megatron {

/// The verbs of Ops for a context's rows, divided or whole. The mask's query offsets are those of a cache: absent where
/// rows are divided. `dropout.positions` and the mask's document starts are the rows'. What `saved` is given and gets
/// lives until the backward.
void attend(Context& context, const AttentionForwardArgs& args, SavedExchange& saved);
void attend_back(Context& context, const AttentionBackwardArgs& args, const SavedExchange& saved);

}  // namespace megatron
