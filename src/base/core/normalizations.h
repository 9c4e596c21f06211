// The table of normalizations over the last dimension. The backends compute them (backend/cpu/norm.cpp,
// cuda/norm_forward.cu, cuda/norm_backward.cu); what parameters and statistics a kind has is in its row.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace megatron {

enum class Normalization {
  layer,             ///< the mean is subtracted (Ba et al. 2016)
  root_mean_square,  ///< nothing is subtracted, the mean square takes the variance's place (Zhang & Sennrich 2019)
};

struct NormalizationRow {
  Normalization kind;
  std::string_view name;  ///< model.normalization
  bool centered = false;  ///< subtracts the mean, and saves it for its backward
  bool bias = false;      ///< has a bias next to its weight
};

inline constexpr std::array kNormalizations{
    NormalizationRow{Normalization::layer, "layernorm", true, true},
    NormalizationRow{Normalization::root_mean_square, "rmsnorm", false, false},
};

constexpr const NormalizationRow& row_of(Normalization kind) {
  return kNormalizations[static_cast<std::size_t>(kind)];
}

/// The rows are in the order of the enum.
constexpr bool normalizations_in_order() {
  for (std::size_t i = 0; i < kNormalizations.size(); ++i) {
    if (kNormalizations[i].kind != static_cast<Normalization>(i)) return false;
  }
  return true;
}
static_assert(normalizations_in_order());

}  // namespace megatron
