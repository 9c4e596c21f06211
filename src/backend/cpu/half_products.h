// HalfProducts: how the CPU backend multiplies matrices of bf16: widened to f32, or by instructions of the processor
// that multiply bf16 and sum in f32. Chosen once, by what this processor has and what the run asks for.
#pragma once

#include <string>

#include "base/core/native_16bit.h"

namespace megatron {

enum class HalfProducts { widened, avx512_bf16, amx_bf16 };

/// Features that decide; a test gives its own.
struct ProcessorFeatures {
  bool amx_bf16 = false;     ///< matrix units: 8 to 16 times the rate of f32
  bool avx512_bf16 = false;  ///< dot products of pairs
  bool fast_pairs = false;   ///< these dot products are faster than f32, as AMD's; Sapphire Rapids' have half its rate
};

/// Features of this processor that oneDNN is let use (ONEDNN_MAX_CPU_ISA), found out once: what makes hosts equal for
/// its kernels makes them equal for bf16 too. Asks the system for leave to use the matrix units.
const ProcessorFeatures& processor_features();

/// Throws Error(configuration), which names the features, if `on` asks for what the processor has not.
HalfProducts choose_half_products(Native16Bit wanted, const ProcessorFeatures& features);

/// `wanted`, or `automatic` in place of an `on` that a processor with these features would refuse: for plans of runs on
/// other processors.
Native16Bit possible_native_16bit(Native16Bit wanted, const ProcessorFeatures& features);

/// "amx_bf16", as /proc/cpuinfo writes the feature, or "widened".
std::string name_of(HalfProducts products);

}  // namespace megatron
