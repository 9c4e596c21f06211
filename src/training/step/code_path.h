// The code that a backend and its libraries choose on this host, for the layers above, which do not know backends.
#pragma once

#include <string>

#include "base/core/native_16bit.h"
#include "distributed/comm/communicator.h"

namespace megatron {

/// One line, as the CPU backend says it; a device's own libraries are not told.
std::string chosen_code_path();

/// How the CPU backend of this host multiplies bf16 if the run wants this: "amx_bf16", "avx512_bf16" or "widened".
/// Throws Error(configuration) where it cannot.
std::string chosen_half_products(Native16Bit wanted);

/// The same wish, or `automatic` where this host would refuse it: for plans of runs on other hosts.
Native16Bit native_16bit_here(Native16Bit wanted);

/// Collective: throws the same Error(configuration) on all ranks, which names the hosts, unless all multiply bf16
/// alike. Unequal ones would let copies of parameters drift apart.
void require_same_half_products(Communicator& world, const std::string& host, const std::string& products);

}  // namespace megatron
