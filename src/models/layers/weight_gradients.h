// WeightGradients: decides when the products that make the gradients of matrices run, and where the gradients that such
// a product reads live until then. Layers hand it every product and never ask when it runs.
//
// Immediate: inside the backward. Deferred: in a later, separate action (zero-bubble schedules). Knows no layers.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/parallel/first_sums.h"
#include "distributed/parallel/gradient_reducer.h"
#include "distributed/parallel/tensor_region.h"

namespace megatron {

struct Context;

/// gradient [out, in] += dyᵀ · x over all rows; the first of a step may set it (first_sums.h). A column-parallel
/// layer's x, a row-parallel one's dy lie outside the tensor region, and are gathered under sequence parallelism. A
/// whole layer, which no region has a part of, has both outside: its rows are this rank's, and nothing is gathered. A
/// look-up is the product with its ids as one-hot rows: x are the ids, i32 [n], and dy is outside.
struct WeightProduct {
  enum class Layer { column_parallel, row_parallel, whole, look_up };

  Layer layer = Layer::column_parallel;
  ConstTensor dy, x;
  Tensor gradient;

  std::int64_t first_row = 0;  ///< for a look-up: the row of the table that the gradient begins with

  ConstTensor& outside() { return layer == Layer::row_parallel || layer == Layer::look_up ? dy : x; }
};

class WeightGradients {
 public:
  virtual ~WeightGradients() = default;

  /// Before the operations that a product can overlap with: starts to gather its outside operand into context.scratch
  /// if the product runs in this backward.
  virtual TensorRegion::Entering start_gather(Context& context, WeightProduct product) = 0;
  /// Adds the product to its gradient, now or later. `gathered` is the outside operand, of start_gather() or of the
  /// layer's own enter; its memory lasts until this returns, that of the product's dy and x until the product has run.
  virtual void add(Context& context, WeightProduct product, TensorRegion::Entering gathered) = 0;
  /// Nothing more is added to the gradients of this parameter, by its index, and of those declared after it, but the
  /// products handed over so far.
  virtual void complete_from(const Context& context, int parameter) = 0;

  /// Memory for a gradient that a product reads.
  virtual Tensor allocate(Context& context, const char* what, Shape shape, DType type) = 0;
  /// A gradient in memory that a product can read: the gradient itself, or a copy in `finished`, which the backward
  /// reads no more (if absent: in separate memory).
  virtual ConstTensor keep(Context& context, ConstTensor gradient, Tensor finished) = 0;
  /// Where to set a gradient that a product reads: `finished`, as above, or temporary().
  template <class Temporary>
  Tensor place(Tensor finished, const Temporary& temporary) const {
    return deferred() ? finished : temporary();
  }

  /// Whether products run after the backward, in backward_weight.
  virtual bool deferred() const = 0;
};

/// Products run at once, the outside operand's gather overlaps with the input gradient.
class ImmediateWeightGradients final : public WeightGradients {
 public:
  /// With a reducer in the backward after which gradients are complete: it sums them under this backward.
  explicit ImmediateWeightGradients(GradientReducer* reducer = nullptr) : reducer_(reducer) {}

  TensorRegion::Entering start_gather(Context& context, WeightProduct product) override;
  void add(Context& context, WeightProduct product, TensorRegion::Entering gathered) override;
  void complete_from(const Context& context, int parameter) override;
  Tensor allocate(Context& context, const char* what, Shape shape, DType type) override;
  ConstTensor keep(Context& context, ConstTensor gradient, Tensor finished) override;
  bool deferred() const override { return false; }

 private:
  GradientReducer* reducer_;
};

/// The one without a reducer: it has no state.
WeightGradients& immediate_weight_gradients();

/// Products wait for run(). Owns records alone, whose memory stays for the next micro-batch; operands live in
/// context.saved.
class DeferredWeightGradients final : public WeightGradients {
 public:
  TensorRegion::Entering start_gather(Context& context, WeightProduct product) override;
  void add(Context& context, WeightProduct product, TensorRegion::Entering gathered) override;
  void complete_from(const Context& context, int parameter) override;
  Tensor allocate(Context& context, const char* what, Shape shape, DType type) override;
  ConstTensor keep(Context& context, ConstTensor gradient, Tensor finished) override;
  bool deferred() const override { return true; }

  /// Hands everything to context.weight_gradients, in the order of the backward, and forgets it. The context is that of
  /// the same micro-batch.
  void run(Context& context);

 private:
  struct Record {
    WeightProduct product;
    int complete_from;  // kNone: a product
  };

  std::vector<Record> records_;
};

}  // namespace megatron
