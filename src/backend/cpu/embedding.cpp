#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/arguments.h"

namespace megatron {

namespace {

template <class T>
void look_up(const ThreadTeam& team, const EmbeddingForwardArgs& args) {
  const RowsOf table(args.weight);
  const std::int64_t n = args.ids.elements(), columns = table.columns;
  const std::int32_t* ids = elements_of<std::int32_t>("embedding_forward", args.ids, n);
  const T* weight = elements_of<T>("embedding_forward", args.weight, table.elements());
  T* y = elements_of<T>("embedding_forward", args.y, n * columns);
  team.rows(n, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t row = ids[i] - args.first_row;
      const bool here = row >= 0 && row < table.rows;
      T* target = y + i * columns;
      if (args.accumulate) {
        if (!here) continue;
        const T* source = weight + row * columns;
#pragma omp simd
        for (std::int64_t j = 0; j < columns; ++j) target[j] = narrow<T>(wide(target[j]) + wide(source[j]));
      } else if (here) {
        std::copy_n(weight + row * columns, columns, target);
      } else {
        std::fill_n(target, columns, T{});
      }
    }
  });
}

template <class T>
void add_gradients(const ThreadTeam& team, const EmbeddingBackwardArgs& args) {
  const RowsOf table(args.dweight);
  const std::int64_t n = args.ids.elements(), columns = table.columns;
  const std::int32_t* ids = elements_of<std::int32_t>("embedding_backward", args.ids, n);
  const T* dy = elements_of<T>("embedding_backward", args.dy, n * columns);
  float* dweight = elements_of<float>("embedding_backward", args.dweight, table.elements());
  team.columns(n, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t row = ids[i] - args.first_row;
      if (row < 0 || row >= table.rows) continue;
      const T* source = dy + i * columns;
      float* target = dweight + row * columns;
#pragma omp simd
      for (std::int64_t j = first; j < last; ++j) target[j] += wide(source[j]);
    }
  });
}

}  // namespace

void CpuOps::embedding_forward(const EmbeddingForwardArgs& args) {
  with_activation_type("embedding_forward", args.y.dtype(), [&]<class T>(T) { look_up<T>(team_, args); });
}

void CpuOps::embedding_backward(const EmbeddingBackwardArgs& args) {
  with_activation_type("embedding_backward", args.dy.dtype(), [&]<class T>(T) { add_gradients<T>(team_, args); });
}

}  // namespace megatron
