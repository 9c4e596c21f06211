// Rows of optimizer.offload = "file": the bits of states in memory, in whole and in part.
#include "parity/subjects.h"

namespace megatron::test {

std::vector<Row> offload() {
  const std::vector<std::string> file = {"optimizer.offload=file"};
  const std::vector<std::string> half = {"optimizer.offload=file", "optimizer.offload_fraction=0.5"};
  const std::vector<std::string> gradients = {"optimizer.share=gradients"}, bf16 = {"precision.compute=bf16"};
  const std::vector<std::string> bf16_divided = {"optimizer.share=state", "precision.compute=bf16"};
  return {
      {"state in files, one rank", 1, 1, 1, file, {}, "one rank"},
      {"state in files, gradients, data 2", 1, 2, 1, with(half, gradients), {}, "gradients, data 2"},
      {"bf16 divided, data 2, pipeline 2", 1, 2, 2, bf16_divided, {}, ""},
      {"state in files, bf16 divided", 1, 2, 2, with(file, bf16_divided), {}, "bf16 divided, data 2, pipeline 2"},
      {"half of it, bf16 divided", 1, 2, 2, with(half, bf16_divided), {}, "bf16 divided, data 2, pipeline 2"},
      {"Muon, tensor 2, bf16", 2, 1, 1, bf16, kMuon, ""},
      {"state in files, Muon, tensor 2, bf16", 2, 1, 1, with(half, bf16), kMuon, "Muon, tensor 2, bf16"},
  };
}

}  // namespace megatron::test
