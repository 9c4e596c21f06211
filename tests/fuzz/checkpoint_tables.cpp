// The tables of a checkpoint, in front of all its numbers: the manifest, as it is and with the checksum that belongs to
// its contents, and a rank file's table of slices.
#include "checkpoint/store/files.h"
#include "checkpoint/store/manifest.h"
#include "checkpoint/store/overlap.h"
#include "checkpoint/store/rank_file.h"
#include "fuzz/fuzz.h"

using namespace megatron;

namespace {

/// The manifest with the right checksum, or the same text if it has no contents.
std::string with_checksum(const std::string& text) {
  nlohmann::json whole = nlohmann::json::parse(text, nullptr, false);
  if (!whole.is_object() || !whole.contains("content") || !whole.contains("format_version")) return text;
  if (!whole["format_version"].is_string()) return text;
  try {
    whole["checksum"] = digest_text(whole["format_version"].get<std::string>() + "\n" + whole["content"].dump());
    return whole.dump();
  } catch (const nlohmann::json::exception&) {  // not UTF-8
    return text;
  }
}

void read_manifest_text(const std::string& text) {
  fuzz::allow({ErrorKind::checkpoint}, [&] {
    const Manifest manifest = parse_manifest(text);
    fuzz::require(manifest.file_bytes() >= 0 && manifest.states().size() <= 8 * manifest.tensors.size(),
                  "a manifest of nonsense");
    parse_manifest(manifest_text(manifest));  // an accepted manifest can be written
  });
}

void read_table(const std::string& text) {
  fuzz::allow({ErrorKind::checkpoint}, [&] {
    for (const TableEntry& entry : parse_slice_table({text, {"m", "v"}}, 0)) {
      // Segments are planned for slices that were accepted, whatever their boxes are.
      if (entry.shape.elements() > 1 << 16) continue;
      TensorSlice whole{entry.name, entry.shape, {entry.shape, entry.shape}, 0, entry.shape.elements()};
      for (int i = 0; i < entry.shape.rank(); ++i) whole.box.offset[i] = 0;
      std::vector<CopySegment> segments;
      append_overlap(whole, 0, entry.slice, segments);
      std::int64_t covered = 0;
      for (const CopySegment& segment : segments) covered += segment.count;
      fuzz::require(covered == entry.slice.count, "a slice that does not lie in its tensor");
    }
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_manifest_text(text);
  read_manifest_text(with_checksum(text));
  read_table(text);
  return 0;
}
