// Results of a planner, in words and as JSON. Text only; the numbers come from search.h.
#pragma once

#include <string>

#include "planning/layout_search/search.h"

namespace megatron {

/// The best layouts as a table, why the second one lost to the first, and how many were looked at.
std::string describe_search(const SearchResult& result, const Hardware& hardware, int ranks);

/// One layout: where its time goes, stage by stage, and what binds it.
std::string explain_layout(const PlannedLayout& layout, const Hardware& hardware);

/// Both as JSON: an object with the hardware and an array of layouts, the fastest first.
std::string layouts_as_json(const std::vector<PlannedLayout>& layouts, const Hardware& hardware, int ranks);

/// The largest part of a step that is no product, in words: "bubble 12 %".
std::string what_binds(const StepTime& time);

}  // namespace megatron
