// The table of pipeline schedules: what all layers but the pipeline must know of one. Its list of actions and its
// formulas are in the row of the same name in training/pipeline/schedule.cpp.
#pragma once

#include <array>
#include <string_view>

#include "base/core/named_rows.h"

namespace megatron {

struct ScheduleFacts {
  std::string_view name;         ///< parallel.schedule
  bool chunks = false;           ///< a stage holds several chunks of the model; others hold one
  bool splits_backward = false;  ///< weight gradients are separate actions, which fill the bubble
};

inline constexpr std::array kSchedules{
    ScheduleFacts{.name = "1f1b"},
    ScheduleFacts{.name = "gpipe"},
    ScheduleFacts{.name = "interleaved", .chunks = true},
    ScheduleFacts{.name = "zero_bubble", .splits_backward = true},
};

/// The one for a model in chunks, where none is named.
constexpr std::string_view schedule_with_chunks() {
  return std::find_if(kSchedules.begin(), kSchedules.end(), [](const ScheduleFacts& row) { return row.chunks; })->name;
}

}  // namespace megatron
