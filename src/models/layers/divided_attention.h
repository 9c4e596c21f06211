// Attention where context ranks divide the sequences: this rank's queries, two chunks of them, to the keys of all.
// Keys and values are gathered, in the forward and again in the backward, and their gradients reduce-scattered
// (parallel.context_exchange = "gathered").
//
// Every query meets the keys in the order of the sequence, by the operations that one rank would run: what comes out is
// the same to the bit where a backend's blocks of queries are no longer than a chunk.
#pragma once

#include "models/layers/context.h"

namespace megatron {

/// The verbs of Ops for a context's rows, divided or whole. The mask's query offsets are those of a cache: absent where
/// rows are divided. `dropout.positions` and the mask's document starts are the rows'.
void attend(Context& context, const AttentionForwardArgs& args);
void attend_back(Context& context, const AttentionBackwardArgs& args);

}  // namespace megatron
