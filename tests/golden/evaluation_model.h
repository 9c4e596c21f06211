// The small model of golden/evaluation, which transformers saved, as a checkpoint of ours.
#pragma once

#include <string>

#include "checkpoint/hugging_face/hugging_face.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace megatron::test {

inline std::string golden(const std::string& name) {
  return std::string(MEGATRON_GOLDEN_FOLDER) + "/" + name;
}

struct EvaluationModel {
  TemporaryFolder folder;
  std::string checkpoint = folder.file("checkpoint");

  EvaluationModel() {
    const std::string source = folder.file("source");
    std::filesystem::copy(golden("evaluation"), source);
    for (const char* const name : {"vocab.json", "merges.txt"}) {
      std::filesystem::copy(golden(std::string("bpe/") + name), source);
    }
    run_as_threads(1, [&](Communicator& world) { import_checkpoint(source, checkpoint, world, {}); });
  }
};

}  // namespace megatron::test
