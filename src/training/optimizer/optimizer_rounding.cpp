// Part of Optimizer: states in bf16, which an update rounds by draws for each parameter's elements.
#include <fmt/format.h>

#include "base/core/philox.h"
#include "training/optimizer/optimizer.h"

namespace megatron {

Optimizer::Piece Optimizer::piece_of(const Parameter& parameter, const FlatRange& range, const Names& states) {
  internal_check(parameter.box.extent.rank() <= 2, "only vectors and matrices have states that are rounded");
  Piece piece{range, &parameter, {}};
  internal_check(states.size() <= piece.sites.size(), "more states than StateDraws has keys for", states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    piece.sites[i] = hash_name(fmt::format("state {} of {}", states.all[i], parameter.name));
  }
  return piece;
}

StateDraws Optimizer::draws_of(const Piece& piece, std::int64_t first) const {
  const Parameter& parameter = *piece.parameter;
  const Shape &offset = parameter.box.offset, &extent = parameter.box.extent;
  const int last = extent.rank() - 1;
  StateDraws draws{.first = first - parameter.first,
                   .columns = extent[last],
                   .first_row = last == 0 ? 0 : offset[0],
                   .first_column = offset[last]};
  for (std::size_t i = 0; i < draws.keys.size(); ++i) {
    draws.keys[i] = random_key(seed_, static_cast<std::uint64_t>(updates_) + 1, piece.sites[i]);
  }
  return draws;
}

}  // namespace megatron
