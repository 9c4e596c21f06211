// Decontamination: cuts what evaluation tasks have out of a document, with its surroundings up to the ends of
// sentences.
//
// At an n-gram of a task the text is divided: the left part ends with the last of .!? that is `context` characters
// before it or more, the right part begins after the first one that is as far behind its end. Parts of `least_part`
// characters and fewer are dropped; the right part is searched again. A document of more than `most_parts` is dropped.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "data/cleaning/ngram_index.h"

namespace megatron {

struct CutRule {
  std::size_t context = 200, least_part = 200, most_parts = 10;
};

/// The rest of a document.
struct CutDocument {
  std::vector<std::string_view> parts;    ///< ranges of its text, in their order: all of it where nothing was found
  std::vector<std::string_view> matches;  ///< the n-grams as they stand in the text
  bool too_many_parts = false;            ///< none is kept then
};

/// With the index's compat rule the right part begins as far behind the place where the n-gram would end if its words
/// stood a space apart.
CutDocument cut_contamination(std::string_view text, NgramIndex& index, const CutRule& rule = {});

}  // namespace megatron
