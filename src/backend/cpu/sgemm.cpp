#include "backend/cpu/sgemm.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <vector>

#include "base/core/error.h"
#include "base/system/crash_report.h"

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

// oneDNN generates the code of its kernels when they are first used, and crashes where there is no memory for it. So
// that happens once, early, and with a look at whether there is some: about 8 MB and 30 milliseconds.
bool generate_kernels() {
  constexpr std::size_t kCodeBytes = 16 << 20;
  void* const room = ::mmap(nullptr, kCodeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  ::munmap(room, kCodeBytes);
  constexpr std::int64_t kSmall = 8, kLarge = 64;  // one kind of kernels for small products, one for others
  const GeneratedCode generated;
  std::vector<float> a(kLarge * kLarge), b(kLarge * kLarge), c(kLarge * kLarge);
  for (const std::int64_t n : {kSmall, kLarge}) {
    for (const char transpose_a : {'N', 'T'}) {
      for (const char transpose_b : {'N', 'T'}) {
        for (const float beta : {0.0f, 1.0f, 2.0f}) {
          const dnnl_status_t status =
              dnnl_sgemm(transpose_a, transpose_b, n, n, n, 1, a.data(), n, b.data(), n, beta, c.data(), n);
          if (status == dnnl_out_of_memory) throw std::bad_alloc();  // the next product tries again
        }
      }
    }
  }
  return true;
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
  [[maybe_unused]] static const bool generated_kernels = generate_kernels();
  const GeneratedCode generated;
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a.data,
                                          a.stride, b.data, b.stride, beta, c.data, c.stride);
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  if (status != dnnl_success) [[unlikely]] {
    fail(ErrorKind::internal, "dnnl_sgemm (m {}, n {}, k {}, strides {}, {}, {}) returned status {}", m, n, k, a.stride,
         b.stride, c.stride, static_cast<int>(status));
  }
}

}  // namespace megatron
