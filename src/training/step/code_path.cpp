#include "training/step/code_path.h"

#include "backend/cpu/code_path.h"

namespace megatron {

std::string chosen_code_path() {
  return code_path();
}

}  // namespace megatron
