// The table of activations: the functions between the two products of a feed-forward part. The backends compute them
// (backend/cpu/activation.cpp, cuda/activation.cu); everything else that depends on the choice is in its row.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace megatron {

/// Gated ones multiply the activated gate into the other half of their input (Shazeer 2020).
enum class Activation {
  gelu,        ///< tanh form (Hendrycks & Gimpel 2016): 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))
  gelu_exact,  ///< 0.5 z (1 + erf(z / sqrt(2)))
  relu,        ///< max(z, 0); derivative 0 at 0
  swiglu,      ///< silu(gate) · up, silu(z) = z / (1 + exp(-z))
  geglu,       ///< gelu(gate) · up, gelu in its tanh form
  tanh,
};

struct ActivationRow {
  Activation activation;
  std::string_view name;  ///< model.activation
  bool gated = false;
  const char* hugging_face = nullptr;  ///< in config.json, of a gated one its gate's; null: it has none
};

inline constexpr std::array kActivations{
    ActivationRow{Activation::gelu, "gelu", false, "gelu_new"},
    ActivationRow{Activation::gelu_exact, "gelu_exact", false, "gelu"},
    ActivationRow{Activation::relu, "relu", false, "relu"},
    ActivationRow{Activation::swiglu, "swiglu", true, "silu"},
    ActivationRow{Activation::geglu, "geglu", true, "gelu_pytorch_tanh"},
    ActivationRow{Activation::tanh, "tanh", false, "tanh"},
};

constexpr const ActivationRow& row_of(Activation activation) {
  return kActivations[static_cast<std::size_t>(activation)];
}
constexpr bool is_gated(Activation activation) {
  return row_of(activation).gated;
}

/// The rows are in the order of the enum.
constexpr bool activations_in_order() {
  for (std::size_t i = 0; i < kActivations.size(); ++i) {
    if (kActivations[i].activation != static_cast<Activation>(i)) return false;
  }
  return true;
}
static_assert(activations_in_order());

}  // namespace megatron
