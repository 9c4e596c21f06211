#include "backend/cpu/code_path.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

namespace megatron {

namespace {

// By the words of ONEDNN_MAX_CPU_ISA.
std::string name_of(dnnl_cpu_isa_t isa) {
  switch (isa) {
    case dnnl_cpu_isa_sse41: return "SSE41";
    case dnnl_cpu_isa_avx: return "AVX";
    case dnnl_cpu_isa_avx2: return "AVX2";
    case dnnl_cpu_isa_avx2_vnni: return "AVX2_VNNI";
    case dnnl_cpu_isa_avx512_core: return "AVX512_CORE";
    case dnnl_cpu_isa_avx512_core_vnni: return "AVX512_CORE_VNNI";
    case dnnl_cpu_isa_avx512_core_bf16: return "AVX512_CORE_BF16";
    case dnnl_cpu_isa_avx512_core_amx: return "AVX512_CORE_AMX";
    default: return fmt::format("instructions {:#x}", static_cast<unsigned>(isa));
  }
}

}  // namespace

std::string code_path() {
  const dnnl_version_t& version = *dnnl_version();
  std::string text = fmt::format("oneDNN {}.{}.{} for {}", version.major, version.minor, version.patch,
                                 name_of(dnnl_get_effective_cpu_isa()));
#ifdef __GLIBC__
  text += fmt::format(", glibc {}", gnu_get_libc_version());
#endif
  return text;
}

}  // namespace megatron
