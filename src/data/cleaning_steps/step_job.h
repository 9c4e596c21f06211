// StepJob: all that a step is played with, and what follows from it before anything is read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/cleaning_steps/output_text.h"
#include "data/cleaning_steps/step.h"
#include "data/preprocess/text_corpus.h"

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

/// Whether the inputs are dumps of MediaWiki.
bool has_pages(const StepJob& job);
/// Everything that decides the result but the inputs, as text. ErrorKind::data for a key's file that is missing.
std::string identity_of(const StepJob& job);
/// The identities of all jobs. ErrorKind::data if a rank's are not rank 0's: a key's file has other contents there.
/// Collective.
std::string agreed_identity(Communicator& world, std::span<const StepJob> jobs);
/// The inputs as TextCorpus takes them.
TextInputs text_inputs(const StepJob& job);

/// Most memory that a rank needs in addition to the program and the step's own (a tokenizer's vocabulary, hashes of
/// URLs, what the row's note says), in bytes, whatever the input's size.
std::uint64_t most_step_bytes(const StepJob& job);

}  // namespace megatron
