// --dry-run: what an input file will do, told by the program's own plan. Needs no launcher, MPI, GPU or data, and
// plans features that training does not have yet (and says which).
#pragma once

#include <string>

#include "config/config.h"

namespace megatron {

/// `config` as parsed. `ranks` 0: as many as tensor · context · pipeline · data (data 1 if not given). Where the data
/// is on disk its facts are used; ErrorKind::data for files of a task that are there and cannot be read.
std::string dry_run(Config config, int ranks);

}  // namespace megatron
