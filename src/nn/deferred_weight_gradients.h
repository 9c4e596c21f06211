// DeferredWeightGradients: gradients of matrices that a backward has put off to an action of their own (zero-bubble
// schedules).
//
// Owns records alone, whose memory stays for the next micro-batch; operands and gradients lie where the backward has
// left them, until run(). Knows no layers: a record is a product, or says which gradients are complete by then.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace megatron {

struct Context;

/// gradient [out, in] += dyᵀ · x over all rows. A column-parallel layer's x, a row-parallel one's dy lie outside the
/// tensor region, and are gathered under sequence parallelism.
struct WeightProduct {
  enum class Layer { column_parallel, row_parallel };

  Layer layer = Layer::column_parallel;
  ConstTensor dy, x;
  Tensor gradient;
};

class DeferredWeightGradients {
 public:
  void defer(const WeightProduct& product) { records_.push_back({product, kProduct}); }
  /// By now the gradients from this flat element on are complete, if this is the last micro-batch.
  void defer_ready(std::int64_t element) { records_.push_back({{}, element}); }

  /// Adds all products to their gradients in the order in which they were put off, and forgets them. The context is
  /// that of the micro-batch, whose deferred_gradients is not set.
  void run(Context& context);

 private:
  static constexpr std::int64_t kProduct = -1;
  struct Record {
    WeightProduct product;
    std::int64_t complete_from;  // kProduct: a product
  };

  std::vector<Record> records_;
};

}  // namespace megatron
