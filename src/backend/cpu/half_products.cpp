#include "backend/cpu/half_products.h"

#include <oneapi/dnnl/dnnl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/core/error.h"

namespace megatron {

namespace {

#if defined(__x86_64__)
/// Linux gives the matrix units' registers only to processes that ask, for all of their threads.
bool get_matrix_units() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

ProcessorFeatures find_features() {
  const auto usable = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  const auto has = [&](dnnl_cpu_isa_t isa) {
    return (usable & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
  };
  return {.amx_bf16 = has(dnnl_cpu_isa_avx512_core_amx) && get_matrix_units(),
          .avx512_bf16 = has(dnnl_cpu_isa_avx512_core_bf16),
          .fast_pairs = __builtin_cpu_is("amd") != 0};
}
#else
ProcessorFeatures find_features() {
  return {};
}
#endif

}  // namespace

const ProcessorFeatures& processor_features() {
  static const ProcessorFeatures features = find_features();
  return features;
}

HalfProducts choose_half_products(Native16Bit wanted, const ProcessorFeatures& features) {
  if (wanted == Native16Bit::off) return HalfProducts::widened;
  if (features.amx_bf16) return HalfProducts::amx_bf16;
  if (features.avx512_bf16 && (features.fast_pairs || wanted == Native16Bit::on)) return HalfProducts::avx512_bf16;
  verify(wanted != Native16Bit::on, ErrorKind::configuration,
         "run.native_16bit = \"on\": this processor multiplies no bf16: it has neither amx_bf16 nor avx512_bf16, or "
         "ONEDNN_MAX_CPU_ISA hides them; use \"auto\" or \"off\"");
  return HalfProducts::widened;
}

Native16Bit possible_native_16bit(Native16Bit wanted, const ProcessorFeatures& features) {
  const bool refused = wanted == Native16Bit::on && !features.amx_bf16 && !features.avx512_bf16;
  return refused ? Native16Bit::automatic : wanted;
}

std::string name_of(HalfProducts products) {
  switch (products) {
    case HalfProducts::amx_bf16: return "amx_bf16";
    case HalfProducts::avx512_bf16: return "avx512_bf16";
    case HalfProducts::widened: break;
  }
  return "widened";
}

}  // namespace megatron
