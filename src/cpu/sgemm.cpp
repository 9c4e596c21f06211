#include "cpu/sgemm.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>

#include "base/crash_report.h"
#include "base/error.h"

namespace megatron {

namespace {

// OpenMP's thread count belongs to each thread, so that it is set on the thread that calls (about a nanosecond). Looked
// up by name, the function is the one of the runtime that oneDNN itself is bound to, whichever that is; an oneDNN
// without OpenMP has none.
using SetThreads = void (*)(int);

void use_one_thread() {
  static const auto set_threads = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set_threads != nullptr) set_threads(1);
}

void multiply_rows(std::int64_t m, std::int64_t n, float beta, Matrix c) {
  for (std::int64_t row = 0; row < m; ++row) {
    float* values = c.data + row * c.stride;
    for (std::int64_t column = 0; column < n; ++column) values[column] = beta == 0 ? 0 : beta * values[column];
  }
}

}  // namespace

void sgemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
           ConstMatrix a, ConstMatrix b, float beta, Matrix c) {
  if (m == 0 || n == 0) return;
  if (k == 0) return multiply_rows(m, n, beta, c);
  use_one_thread();
  const GeneratedCode generated;
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a.data,
                                          a.stride, b.data, b.stride, beta, c.data, c.stride);
  if (status != dnnl_success) [[unlikely]] {
    fail(ErrorKind::internal, "dnnl_sgemm (m {}, n {}, k {}, strides {}, {}, {}) returned status {}", m, n, k, a.stride,
         b.stride, c.stride, static_cast<int>(status));
  }
}

}  // namespace megatron
