#include "train/code_path.h"

#include "cpu/code_path.h"

namespace megatron {

std::string chosen_code_path() {
  return code_path();
}

}  // namespace megatron
