// CPU features that a program was built with. The program itself says them, compiled with the build's -march;
// processor_check.cpp, compiled for any CPU, compares them with the CPU at hand.
#pragma once

/// FEATURE(name of __builtin_cpu_supports, macro of the compiler) for what compilers use by themselves: a program built
/// on AMD's runs on Intel's without sse4a. GCC 12 and Clang 14 know these names, though not f16c, lzcnt and movbe,
/// which come with avx2.
#define MEGATRON_CPU_FEATURES(FEATURE)            \
  FEATURE("sse3", __SSE3__)                       \
  FEATURE("ssse3", __SSSE3__)                     \
  FEATURE("sse4.1", __SSE4_1__)                   \
  FEATURE("sse4.2", __SSE4_2__)                   \
  FEATURE("popcnt", __POPCNT__)                   \
  FEATURE("avx", __AVX__)                         \
  FEATURE("fma", __FMA__)                         \
  FEATURE("fma4", __FMA4__)                       \
  FEATURE("xop", __XOP__)                         \
  FEATURE("bmi", __BMI__)                         \
  FEATURE("avx2", __AVX2__)                       \
  FEATURE("bmi2", __BMI2__)                       \
  FEATURE("avx512f", __AVX512F__)                 \
  FEATURE("avx512cd", __AVX512CD__)               \
  FEATURE("avx512bw", __AVX512BW__)               \
  FEATURE("avx512dq", __AVX512DQ__)               \
  FEATURE("avx512vl", __AVX512VL__)               \
  FEATURE("avx512ifma", __AVX512IFMA__)           \
  FEATURE("avx512vbmi", __AVX512VBMI__)           \
  FEATURE("avx512vbmi2", __AVX512VBMI2__)         \
  FEATURE("avx512vnni", __AVX512VNNI__)           \
  FEATURE("avx512bitalg", __AVX512BITALG__)       \
  FEATURE("avx512vpopcntdq", __AVX512VPOPCNTDQ__) \
  FEATURE("avx512bf16", __AVX512BF16__)           \
  FEATURE("gfni", __GFNI__)                       \
  MEGATRON_CPU_FEATURES_OF_GCC(FEATURE)
#ifdef __clang__
#define MEGATRON_CPU_FEATURES_OF_GCC(FEATURE)
#else
#define MEGATRON_CPU_FEATURES_OF_GCC(FEATURE) FEATURE("avxvnni", __AVXVNNI__) FEATURE("avx512fp16", __AVX512FP16__)
#endif

/// Whether a macro is defined as 1 where this is expanded, as an element of built_with.
#define MEGATRON_CPU_TEXT(MACRO) #MACRO
#define MEGATRON_CPU_FEATURE_IS_USED(NAME, MACRO) MEGATRON_CPU_TEXT(MACRO)[0] == '1',

namespace megatron {

extern const char* const built_for;  ///< -march in words
extern const bool built_with[];      ///< by feature of the list, in its order

}  // namespace megatron
