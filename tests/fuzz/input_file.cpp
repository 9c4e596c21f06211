// The TOML front: an input file, and after each NUL byte the text of a --set.
#include "config/parse/parse.h"
#include "config/rules/resolve.h"
#include "config/schema/print.h"
#include "fuzz/fuzz.h"

using namespace megatron;

namespace {

void resolve_twice(const Config& config, int ranks, const DataFacts* data) {
  fuzz::allow({ErrorKind::configuration}, [&] {
    Config resolved = config;
    resolve(resolved, ranks, data);
    Config again = resolved;
    resolve(again, ranks, data);
    fuzz::require(again == resolved, "resolving twice is not resolving once");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\0', begin)) != std::string::npos; begin = end + 1) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  fuzz::allow({ErrorKind::configuration}, [&] {
    const Config config = parse_config_text(parts[0], "input.toml", {parts.begin() + 1, parts.end()});
    const Config printed = parse_config_text(print_config(config), "printed.toml");
    fuzz::require(printed == config, "what is printed is not read as what it was printed from");
    const DataFacts facts{.vocab_size = 257, .train_samples = 1'000'000};
    resolve_twice(config, 1, nullptr);
    resolve_twice(config, 8, &facts);
  });
  return 0;
}
