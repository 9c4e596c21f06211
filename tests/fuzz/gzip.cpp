// Gzip files: refused as damaged, or one text whatever parts it is read in. The first byte chooses the parts.
#include "data/preprocess/gzip_text.h"
#include "fuzz/fuzz.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const fuzz::ScratchFile file({reinterpret_cast<const char*>(data) + 1, size - 1});
  fuzz::allow({ErrorKind::data}, [&] {
    refuse_other_compression(file.path());
    if (!is_gzip(file.path())) return;
    GzipText text(file.path());
    std::string whole, part, joined;
    text.read(0, text.bytes(), whole);
    fuzz::require(whole.size() == text.bytes(), "another length than it says");
    const std::uint64_t step = 1 + text.bytes() / (1 + data[0]);
    for (std::uint64_t first = 0; first < text.bytes(); first += step) {
      text.read(first, std::min(step, text.bytes() - first), part);
      joined += part;
    }
    fuzz::require(joined == whole, "another text in parts");
    GzipText known(file.path(), text.bytes());  // back to front: each part from the beginning, or from the window
    for (std::uint64_t last = text.bytes(); last > 0; last -= std::min(step, last)) {
      const std::uint64_t first = last - std::min(step, last);
      known.read(first, last - first, part);
      fuzz::require(part == whole.substr(first, last - first), "another text backwards");
    }
  });
  return 0;
}
