#include "models/attention/alibi.h"
#include "support/catch.h"

using namespace megatron;

// Hugging Face transformers 5.23, models/bloom.
TEST_CASE("ALiBi's slopes, of powers of two and of other numbers of heads") {
  CHECK(alibi_slopes(1) == std::vector<float>{0x1p-8f});
  CHECK(alibi_slopes(8) == std::vector<float>{0x1p-1f, 0x1p-2f, 0x1p-3f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f});
  CHECK(alibi_slopes(3) == std::vector<float>{0x1p-4f, 0x1p-8f, 0x1p-2f});
  const std::vector<float> twelve = alibi_slopes(12);
  REQUIRE(twelve.size() == 12);
  CHECK(twelve[7] == Approx(0x1p-8f).epsilon(3e-7));
  CHECK(twelve[8] == Approx(0.707106769f).epsilon(3e-7));
  CHECK(twelve[9] == Approx(0.353553385f).epsilon(3e-7));
  CHECK(twelve[10] == Approx(0.176776677f).epsilon(3e-7));
  CHECK(twelve[11] == Approx(0.0883883387f).epsilon(3e-7));
}
