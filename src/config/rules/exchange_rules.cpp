// Rules about what exchanges of context ranks divide.
#include "config/rules/exchange_rules.h"

#include <algorithm>

#include "config/rules/violations.h"

namespace megatron {

ExchangeSizes exchange_sizes(const Config& config) {
  const ModelConfig& m = config.model;
  const std::int64_t tensor = config.parallel.tensor, heads = std::max<std::int64_t>(m.attention_heads, 1);
  return {.ranks = config.parallel.context,
          .rows = m.sequence_length,
          .heads = (heads + tensor - 1) / tensor,
          .groups = std::max<std::int64_t>(query_groups_of(m) / tensor, 1),
          .head_size = m.attention_heads > 0 ? m.head_size() : 0,
          .element = static_cast<std::int64_t>(size_of(config.precision.dtype()))};
}

const AttentionExchangeRow& exchange_of(const Config& config) {
  const AttentionExchangeRow* const named = find_row(kAttentionExchanges, config.parallel.context_exchange);
  return named != nullptr ? *named : fewest_bytes(exchange_sizes(config));
}

std::int64_t exchange_unit(const Config& config) {
  const std::int64_t context = config.parallel.context;
  if (context == 1) return 1;
  return 2 * context * (config.model.attention_dropout > 0 ? exchange_of(config).rows_with_dropout : 1);
}

namespace {

void check_chunks(const Config& c, const AttentionExchangeRow& exchange, Violations& violations) {
  const std::int64_t unit = exchange_unit(c), length = c.model.sequence_length;
  if (length % (2 * c.parallel.context) != 0 || length % unit == 0) return;  // the former is said elsewhere
  violations.add({"parallel.context_exchange", "model.attention_dropout", "model.sequence_length", "parallel.context"},
                 "parallel.context_exchange = \"{}\": with model.attention_dropout above 0 model.sequence_length = {} "
                 "must be a multiple of {} × parallel.context = {}; nearest lengths: {}",
                 exchange.name, length, 2 * exchange.rows_with_dropout, unit, multiples_around(length, unit));
  violations.add_other_way_out("or give context_exchange = \"{}\"", kAttentionExchanges.front().name);
}

}  // namespace

void check_exchange(const Config& c, Violations& violations) {
  const ModelConfig& m = c.model;
  const std::int64_t tensor = c.parallel.tensor, context = c.parallel.context;
  if (context == 1 || m.attention_heads <= 0 || m.attention_heads % tensor != 0) return;  // the latter: said elsewhere
  const AttentionExchangeRow& exchange = exchange_of(c);
  const ExchangeSizes sizes = exchange_sizes(c);
  check_chunks(c, exchange, violations);
  if (exchange.fits(sizes)) return;
  if (!sizes.heads_divide()) {
    violations.add({"parallel.context_exchange", "parallel.context", "model.attention_heads", "parallel.tensor"},
                   "parallel.context_exchange = \"{}\": the {} heads of a tensor rank, model.attention_heads = {} over "
                   "parallel.tensor = {}, are not divisible by parallel.context = {}; possible: {}",
                   exchange.name, sizes.heads, m.attention_heads, tensor, context, divisors(sizes.heads, context));
  } else {
    violations.add({"parallel.context_exchange", "parallel.context", "model.query_groups", "parallel.tensor"},
                   "parallel.context_exchange = \"{}\": of the {} groups of keys and values of a tensor rank, "
                   "model.query_groups = {} over parallel.tensor = {}, and parallel.context = {} neither divides the "
                   "other",
                   exchange.name, sizes.groups, query_groups_of(m), tensor, context);
  }
  violations.add_other_way_out("or give context_exchange = \"{}\"", kAttentionExchanges.front().name);
}

}  // namespace megatron
