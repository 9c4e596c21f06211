#include "models/attention/divided_attention.h"

#include <algorithm>
#include <array>

namespace megatron {

namespace {

struct ExchangeFunctions {
  std::string_view name;
  void (*forward)(Context&, const AttentionForwardArgs&, SavedExchange&);
  void (*backward)(Context&, const AttentionBackwardArgs&, const SavedExchange&);
};

constexpr std::array kExchangesHere{
    ExchangeFunctions{"gathered", gathered_attention::forward, gathered_attention::backward},
    ExchangeFunctions{"ulysses", ulysses_attention::forward, ulysses_attention::backward},
    ExchangeFunctions{"ring", ring_attention::forward, ring_attention::backward},
};
static_assert(same_names(kExchangesHere, kAttentionExchanges), "base/core/attention_exchanges.h has other exchanges");
static_assert(std::is_sorted(kAttentionExchanges.begin(), kAttentionExchanges.end(),
                             [](const auto& a, const auto& b) { return a.kind < b.kind; }),
              "exchanges that are not in the order of their kinds");

/// Null where rows are whole.
const ExchangeFunctions* exchange_of(const Context& context) {
  if (context.context_region == nullptr || !context.context_region->divided()) return nullptr;
  return &kExchangesHere[static_cast<std::size_t>(context.pass.exchange)];
}

}  // namespace

void attend(Context& context, const AttentionForwardArgs& args, SavedExchange& saved) {
  const ExchangeFunctions* const exchange = exchange_of(context);
  exchange == nullptr ? context.ops.attention_forward(args) : exchange->forward(context, args, saved);
}

void attend_back(Context& context, const AttentionBackwardArgs& args, const SavedExchange& saved) {
  const ExchangeFunctions* const exchange = exchange_of(context);
  exchange == nullptr ? context.ops.attention_backward(args) : exchange->backward(context, args, saved);
}

}  // namespace megatron
