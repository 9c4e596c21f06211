#include <set>

#include "base/core/philox.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("Philox4x32 gives the published answers for ten rounds") {
  // Known answers of the reference implementation (Random123).
  CHECK(philox4x32<10>({0, 0, 0, 0}, 0) == PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32<10>({~0u, ~0u, ~0u, ~0u}, ~0ull) == PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32<10>({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0'a4093822ull) ==
        PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("Philox4x32-7 gives the known answers") {
  CHECK(philox4x32<7>({0, 0, 0, 0}, 0) == PhiloxCounter{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48});
  CHECK(philox4x32<7>({~0u, ~0u, ~0u, ~0u}, ~0ull) == PhiloxCounter{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662});
  CHECK(philox4x32<7>({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0'a4093822ull) ==
        PhiloxCounter{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a});
}

TEST_CASE("random keys and names of sites do not collide") {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint64_t step = 0; step < 10; ++step) {
      for (std::uint64_t site = 0; site < 10; ++site) keys.insert(random_key(seed, step, site));
    }
  }
  CHECK(keys.size() == 1000);
  CHECK(hash_name("") == 0xCBF29CE484222325ull);
  CHECK(hash_name("a") == 0xAF63DC4C8601EC8Cull);
  CHECK(hash_name("layers.0.weight") != hash_name("layers.1.weight"));
}
