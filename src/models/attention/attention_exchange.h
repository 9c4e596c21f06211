// The functions of attention's exchanges: what a row of the table of divided_attention.cpp is made of. Each exchange
// has its own file.
#pragma once

#include "models/layers/context.h"

namespace megatron {

/// Tensors that an exchange keeps from a forward to its backward, in context.saved.
struct SavedExchange {
  /// Memory of the queries, keys and values that are given, where nothing else reads them afterwards; [s, b, width].
  Tensor given = {};
  Tensor inputs = {}, out = {};
};

namespace gathered_attention {
void forward(Context& context, const AttentionForwardArgs& args, SavedExchange& saved);
void backward(Context& context, const AttentionBackwardArgs& args, const SavedExchange& saved);
}  // namespace gathered_attention

namespace ulysses_attention {
void forward(Context& context, const AttentionForwardArgs& args, SavedExchange& saved);
void backward(Context& context, const AttentionBackwardArgs& args, const SavedExchange& saved);
}  // namespace ulysses_attention

namespace ring_attention {
void forward(Context& context, const AttentionForwardArgs& args, SavedExchange& saved);
void backward(Context& context, const AttentionBackwardArgs& args, const SavedExchange& saved);
}  // namespace ring_attention

}  // namespace megatron
