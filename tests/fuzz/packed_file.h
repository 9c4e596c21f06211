// Compressed files: refused as damaged, or one text whatever parts it is read in. The first byte chooses the parts.
#pragma once

#include <algorithm>

#include "data/preprocess/packed_text.h"
#include "fuzz/fuzz.h"

namespace megatron::fuzz {

/// `open(path, bytes)`: the file's text, nullptr if it is not of the kind; `bytes`: its length, if it is known.
template <class Open>
void read_packed(const std::uint8_t* data, std::size_t size, const Open& open) {
  if (size == 0) return;
  const ScratchFile file({reinterpret_cast<const char*>(data) + 1, size - 1});
  allow({ErrorKind::data}, [&] {
    refuse_other_compression(file.path());
    const auto text = open(file.path(), PackedText::kUnknown);
    if (text == nullptr) return;
    std::string whole, part, joined;
    text->read(0, text->bytes(), whole);
    require(whole.size() == text->bytes(), "another length than it says");
    const std::uint64_t step = 1 + text->bytes() / (1 + data[0]);
    for (std::uint64_t first = 0; first < text->bytes(); first += step) {
      text->read(first, std::min(step, text->bytes() - first), part);
      joined += part;
    }
    require(joined == whole, "another text in parts");
    const auto known = open(file.path(), text->bytes());  // back to front: each part from the beginning, or the window
    for (std::uint64_t last = text->bytes(); last > 0; last -= std::min(step, last)) {
      const std::uint64_t first = last - std::min(step, last);
      known->read(first, last - first, part);
      require(part == whole.substr(first, last - first), "another text backwards");
    }
  });
}

}  // namespace megatron::fuzz
