// A program that asks for all features of the processor check, which no CPU has: those with xop lack avx512f. Says so
// if anything of it runs all the same. CMake compiles it for x86-64-v3.
#include <cstdio>
#include <iterator>
#include <string_view>

#include "programs/processor_check.h"

namespace megatron {

#define EVERY_FEATURE(NAME, MACRO) true,
constinit const char* const built_for = "never";
constinit const bool built_with[] = {MEGATRON_CPU_FEATURES(EVERY_FEATURE)};

}  // namespace megatron

namespace {

#define NAME_OF_FEATURE(NAME, MACRO) NAME,
constexpr std::string_view kNames[] = {MEGATRON_CPU_FEATURES(NAME_OF_FEATURE)};
constexpr bool kUsed[] = {MEGATRON_CPU_FEATURES(MEGATRON_CPU_FEATURE_IS_USED)};

/// Whether a program that is compiled like this file asks for a feature.
constexpr bool asks_for(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return kUsed[i];
  }
  return false;
}
static_assert(asks_for("avx2") && asks_for("fma") && asks_for("bmi2") && !asks_for("avx512f") && !asks_for("xop"));

struct Global {
  Global() { std::puts("a constructor ran"); }
} const global;

}  // namespace

int main() {
  std::puts("main ran");
  return 0;
}
