// The value of one key as --set and the answers of --new have it: refused in words, or printed as it reads back. The
// first two bytes choose the key.
#include "config/parse/set_value.h"

#include "base/text/text.h"
#include "config/schema/print.h"
#include "fuzz/fuzz.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choices({reinterpret_cast<const char*>(data), size});
  const Key& key = schema()[choices.number(2) % schema().size()];
  Config config;
  const Config before = config;
  const std::string problem = set_value(key, std::string(choices.rest()), config);
  fuzz::require(problem.empty() || config == before, "a refused value was set");
  if (!problem.empty()) return 0;
  const std::string printed = print_value(key, config);
  Config again;
  fuzz::require(printed.empty() || set_value(key, printed, again).empty(), "what is printed is refused");
  fuzz::require(printed.empty() || print_value(key, again) == printed, "what is printed reads back as another value");
  return 0;
}
