// The readers of what megatron_clean leaves about its documents, in their folder, in shards and in a run: whatever the
// files hold, they are read as ours or left alone. The files are divided by NUL bytes: provenance.json, report.json,
// the provenance of shards, provenance.json of a run; later NULs belong to the last one.
#include "base/text/text.h"
#include "data/preprocess/clean_result.h"
#include "data/preprocess/text_provenance.h"
#include "data/shards/shard_provenance.h"
#include "fuzz/fuzz.h"
#include "fuzz/scratch_folder.h"
#include "monitoring/reports/cleaning_page.h"
#include "monitoring/reports/data_origin.h"

using namespace megatron;

namespace {

void require_no_script(const std::string& page) {
  fuzz::require(page.find("<script") == std::string::npos, "a page with a script");
}

void check_steps(const std::string& json) {
  const std::string words = describe_provenance(json);
  fuzz::require(printable(words) == words, "words that steer the terminal");
}

/// A folder of a result, of which megatron_preprocess makes shards.
void check_result(const fuzz::ScratchFolder& folder) {
  const std::string documents = folder.file("documents.jsonl");
  folder.write("documents.jsonl", "{\"text\": \"one\"}\n");
  const auto provenance = provenance_in(folder.path());
  LastProvenance last;
  const TextOrigin origin = origin_of_text(documents, last);
  if (!provenance) {
    fuzz::require(origin == TextOrigin::unknown, "an origin without a provenance");
    return;
  }
  const std::vector<std::string> files = files_of_result(*provenance);
  fuzz::require(!files.empty(), "a result without files");
  const bool named = std::find(files.begin(), files.end(), "documents.jsonl") != files.end();
  fuzz::require((origin != TextOrigin::unknown) == named, "a file that a provenance names has an origin, and no other");
  const bool whole = has_outputs(folder.path(), *provenance);
  fuzz::require(!whole || !named || origin == TextOrigin::cleaned, "as written, and changed");
  const TextOrigin taken[] = {TextOrigin::cleaned};
  const InputIdentity identity[] = {{documents, 16, 0, 0, 0}};
  check_steps(describe_origins("fuzz", identity, taken));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string parts[4];
  std::string_view text(reinterpret_cast<const char*>(data), size);
  for (std::string& part : parts) {
    const std::size_t end = &part == std::end(parts) - 1 ? text.size() : std::min(text.find('\0'), text.size());
    part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const fuzz::ScratchFolder folder;
  folder.write("provenance.json", parts[0]);
  folder.write("report.json", parts[1]);
  check_result(folder);
  if (const auto report = report_in(folder.path())) require_no_script(cleaning_page(folder.path(), *report, {}));
  check_steps(parts[2]);
  require_no_script(data_origin(parts[3]));
  return 0;
}
