// Layouts for a draft: those that the configuration's rules allow, which one to propose, and whether the answers so far
// leave any. The rules are config/rules/rules.h's; the planner ranks layouts where the hardware is known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/rules/rules.h"
#include "planning/new_input/draft.h"

namespace megatron {

/// The keys that lay out a run on its ranks, in the order of their questions.
inline constexpr std::string_view kLayoutKeys[] = {
    "parallel.tensor",         "parallel.sequence_parallel", "parallel.pipeline", "parallel.schedule",
    "parallel.virtual_stages", "train.micro_batch_size",     "recompute.mode",    "optimizer.share"};

/// The rules' objections to the draft, as far as it is decided: violations that involve an undecided key are left out.
/// Where the ranks and the batch are known but no choice of the undecided layout keys would do: why the smallest one
/// does not.
std::vector<std::string> problems_of(const Draft& draft, const Undecided& undecided);

/// Fills draft.layouts: with the planner's best for draft.hardware, if that is known. Returns what to tell the user.
std::string plan_layouts(Draft& draft);

/// Sets the layout key as the best layout has it that agrees with the layout keys before this one: the first such of
/// draft.layouts, else of all that the rules allow the one with the fewest ranks per replica of the model.
void propose_layout_key(std::string_view key, Draft& draft);

}  // namespace megatron
