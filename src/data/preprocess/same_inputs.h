// Inputs of a job of several ranks. They may be on nodes with separate disks: then they must have the same files under
// the same names. What takes a pass over all of a file is done for it once, by one of the ranks.
#pragma once

#include <vector>

#include "data/preprocess/input_identity.h"
#include "data/preprocess/text_corpus.h"
#include "distributed/comm/communicator.h"

namespace megatron {

/// Collective. ErrorKind::data, naming rank and file, unless all ranks have the same files as rank 0. `mine`: of this
/// rank. Files that were modified at different times are read as a whole.
void require_same_inputs(Communicator& world, const std::vector<InputIdentity>& mine);

/// Collective. Tells a corpus its sizes, each found by one rank: all of a compressed file is unpacked for it. All ranks
/// must have the same files. Of files that count_bytes() refuses, the first one's error is thrown on all ranks.
void share_sizes(Communicator& world, TextCorpus& corpus);

}  // namespace megatron
