// From an input file and `--set` options to a checked Config. Starts nothing, creates nothing, needs neither ranks nor
// data (those: resolve.h). Reads the environment for `${VAR}` in paths, and no other outside state.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/rules/rules.h"
#include "config/schema/config.h"

namespace megatron {

/// Reads the file and then the overrides, "table.key=value" each, of which later ones win and which win over the file.
/// A value is TOML, and anything that is not TOML is a plain string. An override of train.steps replaces the file's
/// samples, tokens or epochs too (likewise warm-up and decay lengths), and an override of model.preset what the file
/// says of the keys that presets decide. `notes` receives a line on that, if it is given.
///
/// `further` finds what else is wrong, with ranks or data, in a configuration that is refused anyway, so that one
/// attempt reports it all.
///
/// Throws one Error(configuration) with one line for every problem: `file:line:column: error: ...` or
/// `--set table.key=value: error: ...`; unknown keys come with the nearest known one.
using FurtherChecks = std::function<std::vector<Violation>(const Config&)>;
Config parse_config(const std::string& path, const std::vector<std::string>& overrides = {},
                    std::vector<std::string>* notes = nullptr, const FurtherChecks& further = nullptr);

/// The same from text; `name` stands for the file in messages.
Config parse_config_text(const std::string& text, const std::string& name,
                         const std::vector<std::string>& overrides = {}, std::vector<std::string>* notes = nullptr,
                         const FurtherChecks& further = nullptr);

}  // namespace megatron
