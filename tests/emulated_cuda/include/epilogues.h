// Epilogues that the emulated matmul library has been asked for.
#pragma once

#include "cuda/matmul_library.h"

namespace emulated_cuda {

/// Products that this thread has had with an epilogue of the kind so far.
int products_with(megatron::Epilogue::Kind kind);

}  // namespace emulated_cuda
