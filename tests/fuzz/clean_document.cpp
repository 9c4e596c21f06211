// A line of a corpus with a member replaced: refused, or JSON again, in which only that member is another one.
#include <nlohmann/json.hpp>

#include "base/text/utf8.h"
#include "data/cleaning_steps/document.h"
#include "data/preprocess/json_text.h"
#include "fuzz/fuzz.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  if (first_invalid_utf8(line) < size || line.find('\n') != line.npos) return 0;
  Document document({{"text"}, {"url", false}});
  try {
    document.read_json(line);
  } catch (const BadDocument&) {
    return 0;
  }
  std::string same, lines;
  document.append_to(same);
  fuzz::require(same == std::string(line) + "\n", "a line that was not changed is another one");
  const std::string replacement = std::string(document.value(1)) + "\n\"\x01";
  document.replace(0, replacement);
  document.append_to(lines);
  Document again({{"text"}, {"url", false}});
  again.read_json(std::string_view(lines).substr(0, lines.size() - 1));
  fuzz::require(again.value(0) == replacement, "another text than was put there");
  fuzz::require(again.has(1) == document.has(1) && again.value(1) == document.value(1), "another member has changed");
  return 0;
}
