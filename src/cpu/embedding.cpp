#include <algorithm>

#include "cpu/arguments.h"
#include "cpu/cpu_ops.h"

namespace megatron {

void CpuOps::embedding_forward(const EmbeddingForwardArgs& args) {
  const RowsOf table(args.weight);
  const std::int64_t n = args.ids.elements(), columns = table.columns;
  const std::int32_t* ids = i32_elements("embedding_forward", args.ids, n);
  const float* weight = f32_elements("embedding_forward", args.weight, table.elements());
  float* y = f32_elements("embedding_forward", args.y, n * columns);
  team_.rows(n, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t row = ids[i] - args.first_row;
      const bool here = row >= 0 && row < table.rows;
      float* target = y + i * columns;
      if (args.accumulate) {
        if (!here) continue;
        const float* source = weight + row * columns;
#pragma omp simd
        for (std::int64_t j = 0; j < columns; ++j) target[j] += source[j];
      } else if (here) {
        std::copy_n(weight + row * columns, columns, target);
      } else {
        std::fill_n(target, columns, 0.0f);
      }
    }
  });
}

void CpuOps::embedding_backward(const EmbeddingBackwardArgs& args) {
  const RowsOf table(args.dweight);
  const std::int64_t n = args.ids.elements(), columns = table.columns;
  const std::int32_t* ids = i32_elements("embedding_backward", args.ids, n);
  const float* dy = f32_elements("embedding_backward", args.dy, n * columns);
  float* dweight = f32_elements("embedding_backward", args.dweight, table.elements());
  team_.columns(n, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t row = ids[i] - args.first_row;
      if (row < 0 || row >= table.rows) continue;
      const float* source = dy + i * columns;
      float* target = dweight + row * columns;
#pragma omp simd
      for (std::int64_t j = first; j < last; ++j) target[j] += source[j];
    }
  });
}

}  // namespace megatron
