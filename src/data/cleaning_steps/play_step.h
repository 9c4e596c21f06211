// A step on a corpus: reads the inputs, plays the step on all ranks, and publishes the result folder.
//
// Ranks take the blocks of the input in turn, one each a round, and rank 0 writes what they keep in the order of the
// input: the result is the same bytes for any number of ranks and any size of blocks. An error on any rank ends the
// step, and it is the first one in the order of the input.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/cleaning_steps/output_text.h"
#include "data/cleaning_steps/step.h"
#include "data/preprocess/text_corpus.h"
#include "distributed/comm/communicator.h"

namespace megatron {

struct StepJob {
  const StepRow* step = nullptr;
  StepKeys keys{{}};
  std::vector<std::string> inputs;
  std::string output;  ///< the result's folder
  std::string format;  ///< "jsonl", "list", or "": by the extensions, .txt being lists
  std::string text_key = "text";
  Packing packing = Packing::none;
  bool skip_bad = false, overwrite = false;
  std::uint64_t examples = 5;  ///< shown of each rule in the report
  std::uint64_t block_bytes = std::uint64_t{8} << 20;
  std::uint64_t longest = std::uint64_t{16} << 20;  ///< bytes of a line
  std::string program;                              ///< name and version, for the provenance
  std::string recipe;                     ///< hash of all that a recipe is made from (recipe.h); empty: no recipe
  std::vector<std::string> input_hashes;  ///< hashes of the files, if they are known (input_hashes.h)
};

struct StepResult {
  nlohmann::ordered_json provenance;  ///< on every rank
  bool was_finished = false;          ///< it was there already, made from the same
};

/// Everything that decides the result but the inputs, as text. ErrorKind::data for a key's file that is missing.
std::string identity_of(const StepJob& job);
/// The inputs as TextCorpus takes them.
TextInputs text_inputs(const StepJob& job);

/// Most memory that a rank needs in addition to the program and the step's own (a tokenizer's vocabulary, hashes of
/// URLs, what the row's note says), in bytes, whatever the input's size.
std::uint64_t most_step_bytes(const StepJob& job);

/// Called on every rank now and then, with the bytes of input done and of all.
using StepProgress = std::function<void(std::uint64_t done, std::uint64_t all)>;

/// Collective. `job` is the same on all ranks. Errors: configuration for values that cannot be and for another result
/// in the folder; data for documents and inputs, with file and line; filesystem.
StepResult play_step(Communicator& world, const StepJob& job, const StepProgress& progress = {});

}  // namespace megatron
