// A recipe: several steps, one after the other, as a TOML file says them (docs/cleaning.md has one). Each step's result
// lies in OUTPUT.steps/ until the last one is there. A recipe that was interrupted continues with the first step that
// is not finished: results are recognised by what they were made from (ResultFolder).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/cleaning_steps/play_step.h"

namespace megatron {

struct Recipe {
  std::vector<StepJob> steps;  ///< the first has the inputs, the last the output; none the files between them
};

/// `name`: of the file, for messages. ErrorKind::configuration, with all mistakes, each with its place.
Recipe parse_recipe(const std::string& text, const std::string& name);
/// Rank 0's file, for all ranks. ErrorKind::configuration if it cannot be read or is no recipe. Collective.
Recipe read_recipe(Communicator& world, const std::string& path);

/// Called on every rank before and after each step.
struct RecipeListener {
  std::function<void(const StepJob&)> begin;
  std::function<void(const StepJob&, const StepResult&)> end;
  StepProgress progress;
};

/// Plays the steps that are not finished. False if all were: the output is there, made from the same. Collective;
/// errors: play_step().
bool play_recipe(Communicator& world, Recipe recipe, const RecipeListener& listener);

}  // namespace megatron
