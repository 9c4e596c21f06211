// The reader of JSON lines: lines out of a file, cut anywhere, and the text out of each, compared with another parser.
// The first byte is the size of the blocks that the file is cut into.
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text/utf8.h"
#include "data/preprocess/input_text.h"
#include "data/preprocess/json_text.h"
#include "fuzz/fuzz.h"

using namespace megatron;

namespace {

using Lines = std::map<std::uint64_t, std::string>;  // by where they begin

Lines lines_of(const InputFile& file, std::uint64_t block_bytes) {
  Lines lines;
  for (const auto& block : cut_into_blocks({file.bytes()}, block_bytes)) {
    for (const Segment& segment : block) {
      visit_documents(file, TextFormat::json_lines, segment, [&](std::string_view text, std::uint64_t offset, bool) {
        fuzz::require(lines.emplace(offset, text).second, "a line is in two blocks");
      });
    }
  }
  return lines;
}

/// Compares with what nlohmann::json makes of a line. It takes numbers beyond a double, byte order marks and NULs in
/// its own way.
void compare_text(const std::string& line) {
  std::string buffer, text, reason;
  bool good = true;
  try {
    text = text_of_json(line, "text", buffer);
  } catch (const BadDocument& bad) {
    good = false;
    fuzz::require(bad.at <= line.size() && !bad.reason.empty(), "an error without a place or a reason");
    fuzz::require(std::all_of(bad.reason.begin(), bad.reason.end(), [](char c) { return c >= ' ' && c <= '~'; }),
                  "a reason that is not fit for a terminal");
  }
  if (line.find('\0') != std::string::npos || line.starts_with("\xEF\xBB\xBF")) return;
  try {
    const auto parsed = nlohmann::json::parse(line);
    const auto member = parsed.is_object() ? parsed.find("text") : parsed.end();
    const bool has_text = parsed.is_object() && member != parsed.end() && member->is_string();
    fuzz::require(good == has_text, "a line that one of two parsers refuses");
    fuzz::require(!good || *member == text, "another text than the other parser's");
  } catch (const nlohmann::json::parse_error&) {
    fuzz::require(!good, "took what is not JSON");
  } catch (const nlohmann::json::out_of_range&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const fuzz::ScratchFile scratch({reinterpret_cast<const char*>(data) + 1, size - 1});
  std::optional<InputFile> file;
  fuzz::allow({ErrorKind::data}, [&] { file.emplace(scratch.path()); });  // pointers of Git LFS, other compressions
  if (!file) return 0;
  const Lines lines = lines_of(*file, size);
  fuzz::require(lines_of(*file, 1 + data[0]) == lines, "where a file is cut changes its lines");
  for (const auto& [offset, line] : lines) {
    fuzz::require(file->line_of(offset) >= 1, "no line number");
    if (first_invalid_utf8(line) == line.size()) compare_text(line);
  }
  return 0;
}
