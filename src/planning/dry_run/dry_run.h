// --dry-run: what an input file will do, told by the program's own plan; and --parameters, its model. They need no
// launcher, MPI, GPU or data, and plan features that training does not have yet (and say which).
#pragma once

#include <optional>
#include <string>

#include "config/rules/resolve.h"
#include "config/schema/config.h"

namespace megatron {

/// `config` as parsed. `ranks` 0: as many as tensor · context · pipeline · data (data 1 if not given). Where the data
/// is on disk its facts are used; ErrorKind::data for files of a task that are there and cannot be read.
std::string dry_run(Config config, int ranks);

/// Ranks of a run that none are given for: tensor · context · pipeline · data (data 1 if not given).
int count_ranks(const ParallelConfig& parallel);

/// Facts of the run's data where it can be read; else none, for which the vocabulary must be given
/// (Error(configuration)).
std::optional<DataFacts> facts_of_data(const Config& config);

/// parameter_table() of `config` on such ranks, below a note where the data is not there; errors as above.
std::string list_parameters(Config config, int ranks);

}  // namespace megatron
