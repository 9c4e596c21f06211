// Prompts of megatron_generate: a request of --serve-stdio, or the lines of --prompts, which the first byte chooses;
// what is taken is what another JSON parser finds.
#include "inference/generation/prompts.h"

#include "fuzz/fuzz.h"
#include "inference/generation/text_request.h"

using namespace megatron;

namespace {

void check_request(const std::string& line, bool beams) {
  nlohmann::json id;
  fuzz::allow({ErrorKind::data, ErrorKind::configuration}, [&] {
    const TextRequest request = parse_request(line, {}, beams, id);
    const nlohmann::json other = nlohmann::json::parse(line);
    fuzz::require(other.at("prompt") == request.prompt, "another prompt than the other parser's");
    fuzz::require(other.value("id", nlohmann::json()) == request.id, "another id than the other parser's");
    fuzz::require(id == request.id && !id.is_structured(), "an id that is none");
    fuzz::require(request.options.samples >= 1 && request.options.sampling.max_new_tokens > 0, "a number out of range");
  });
}

void check_prompts(const std::string& contents) {
  fuzz::allow({ErrorKind::data}, [&] {
    const auto lines = 1 + static_cast<std::size_t>(std::count(contents.begin(), contents.end(), '\n'));
    const std::size_t prompts = parse_prompts(contents, "prompts.txt").size();
    fuzz::require(prompts == lines - (contents.ends_with('\n') ? 1 : 0), "a prompt per line there is not");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  data[0] % 3 == 2 ? check_prompts(text) : check_request(text, data[0] % 3 == 1);
  return 0;
}
