#include "backend/ops/append_rows_shape.h"

#include <algorithm>

#include "backend/cpu/cpu_ops.h"

namespace megatron {

void CpuOps::append_rows(const AppendRowsArgs& args) {
  with_activation_type("append_rows", args.x.dtype(), [&]<class T>(T) {
    const AppendRowsShape shape(args);
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    // A range of samples and heads for each thread: in a cache their rows lie together.
    const std::int64_t pairs = shape.samples * shape.heads;
    team_.ranges(pairs, 1, pairs * shape.rows * shape.size, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t pair = first; pair < last; ++pair) {
        const std::int64_t sample = pair / shape.heads, head = pair % shape.heads;
        const std::int64_t offset = shape.offsets != nullptr ? shape.offsets[sample] : 0;
        const std::int64_t rows = std::min(shape.rows, shape.capacity - offset);
        const T* from = x + sample * args.x.stride(1) + head * args.x.stride(2);
        T* to = y + sample * args.y.stride(1) + head * args.y.stride(2) + offset * args.y.stride(0);
        for (std::int64_t row = 0; row < rows; ++row, from += args.x.stride(0), to += args.y.stride(0)) {
          std::copy_n(from, shape.size, to);
        }
      }
    });
  });
}

}  // namespace megatron
