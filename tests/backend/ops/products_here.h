// Kinds of products of bf16 that this processor has, for tests of all of them.
#pragma once

#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/half_products.h"
#include "support/catch.h"

namespace megatron::test {

/// Says which of them are not tested here.
inline std::vector<HalfProducts> native_products_here() {
  std::vector<HalfProducts> products;
  const auto add = [&](HalfProducts kind, bool here) {
    if (here) products.push_back(kind);
    if (!here) WARN("no " << name_of(kind) << " here: its products are not tested");
  };
  add(HalfProducts::avx512_bf16, processor_features().avx512_bf16);
  add(HalfProducts::amx_bf16, processor_features().amx_bf16);
  return products;
}
inline std::vector<HalfProducts> products_here() {
  std::vector<HalfProducts> products = native_products_here();
  products.insert(products.begin(), HalfProducts::widened);
  return products;
}

/// Skips the test where there are none.
inline std::vector<HalfProducts> require_native_products() {
  std::vector<HalfProducts> products = native_products_here();
  if (products.empty()) skip_test("this processor multiplies no bf16");
  return products;
}

/// For each kind of products that this processor has.
template <class Check>
void check_each(const Check& check) {
  CpuDevice device;
  for (const HalfProducts products : products_here()) {
    INFO(name_of(products));
    CpuOps ops(device, 1, products);
    check(ops);
  }
}

}  // namespace megatron::test
