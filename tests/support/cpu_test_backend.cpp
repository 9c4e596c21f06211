#include "backend/ops/backends.h"
#include "support/test_backend.h"

namespace megatron::test {

Backend make_test_backend() {
  return make_cpu_backend();
}

}  // namespace megatron::test
