// The workspace of the CUDA verbs. Plans are made without a device: they have the most that the
// kernels take on the largest GPU there is, so that what is reserved is never too little, and no step allocates. Part
// of the programs, not of the backend's library, which a plan does without.
#include <algorithm>

#include "backend/ops/backends.h"
#include "backend/ops/counting_ops.h"
#include "backend/ops/device.h"
#include "cuda/distance_floats.h"

namespace megatron {

namespace {

constexpr std::int64_t kMultiprocessors = 160;  // a B200 has 148

std::size_t bytes_of_floats(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

/// Partial sums over rows (column_tile.cuh): eight blocks a multiprocessor, of 32 lanes of vectors.
std::size_t column_sum_bytes(std::int64_t columns) {
  return bytes_of_floats(kMultiprocessors * 8 * 32 * 8 + columns);
}

/// Two sums a column of every resident block (norm_backward.cu), which are fewer the wider rows are.
std::size_t norm_backward_bytes(std::int64_t rows, std::int64_t columns) {
  const std::int64_t blocks = std::min(rows, kMultiprocessors * 16);
  const std::int64_t widest = kMultiprocessors * 16384 + columns;
  return 2 * std::max(column_sum_bytes(columns), bytes_of_floats(std::min(blocks * columns, widest)));
}

/// A sort of n ids with tables of 256 digits for every 2048, and where each row begins and ends (embedding.cu).
std::size_t sort_bytes(std::int64_t n, std::int64_t rows) {
  return bytes_of_floats(4 * n + (n + 2047) / 2048 * 256 + 2 * rows);
}

/// Two statistics of every query and head, queries in whole blocks (attention_backward.cu); and sums of every warp for
/// the gradient of a bias of distances, a warp for 4 queries at least (attention_backward.cuh).
std::size_t attention_backward_bytes(const AttentionBackwardArgs& args) {
  constexpr std::int64_t block = 256;
  const std::int64_t queries = (args.q.dim(0) + block - 1) / block * block, samples = args.q.dim(1);
  const std::int64_t sums = args.ddistance_bias ? queries / 4 * samples * args.ddistance_bias.elements() : 0;
  return bytes_of_floats(2 * samples * args.q.dim(2) * queries + sums + distance_floats(args.mask));
}

constexpr std::size_t kTotalBytes = 4096 * sizeof(double);  // a sum of every block

class CudaCountingOps final : public CountingOps {
 public:
  void column_sum(const ColumnSumArgs& args) override { record_workspace(column_sum_bytes(args.x.dim(1))); }
  void bias_activation_backward(const BiasActivationBackwardArgs& args) override {
    const std::int64_t columns = args.dy.dim(args.dy.rank() - 1);
    record_workspace((is_gated(args.activation) ? 2 : 1) * column_sum_bytes(columns));
  }
  void dropout_add_backward(const DropoutAddBackwardArgs& args) override {
    record_workspace(column_sum_bytes(args.dy.dim(args.dy.rank() - 1)));
  }
  void layer_norm_backward(const LayerNormBackwardArgs& args) override {
    const std::int64_t columns = args.x.dim(args.x.rank() - 1);
    record_workspace(norm_backward_bytes(columns == 0 ? 0 : args.x.elements() / columns, columns));
  }
  void attention_forward(const AttentionForwardArgs& args) override {
    CountingOps::attention_forward(args);
    record_workspace(bytes_of_floats(distance_floats(args.mask)));
  }
  void attention_backward(const AttentionBackwardArgs& args) override {
    CountingOps::attention_backward(args);
    record_workspace(attention_backward_bytes(args));
  }
  void embedding_backward(const EmbeddingBackwardArgs& args) override {
    record_workspace(sort_bytes(args.ids.elements(), args.dweight.dim(0)));
  }
  void cross_entropy_loss(const CrossEntropyLossArgs&) override { record_workspace(kTotalBytes); }
  void plan_routes(const PlanRoutesArgs& args) override {
    if (args.order.random) record_workspace(args.chosen.bytes());  // the order of the choices
  }
  void route_losses(const RouteLossesArgs&) override { record_workspace(kTotalBytes); }
  void square_sum(const SquareSumArgs&) override { record_workspace(kTotalBytes); }
};

}  // namespace

std::unique_ptr<CountingOps> make_cuda_counting_ops() {
  return std::make_unique<CudaCountingOps>();
}

}  // namespace megatron
