// SgemmReference: how fast the backend multiplies matrices of a model's shapes when it does nothing else.
//
// The three products of every distinct weight matrix [out, in]: forward, input gradient, weight gradient. Owns operands
// and separate results, which are filled once and touched by no other code.
#pragma once

#include <string>
#include <vector>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "base/core/stopwatch.h"
#include "config/schema/config.h"

namespace megatron {

class SgemmReference {
 public:
  /// The products that one of `tensor` ranks makes of `model` (resolved) for this number of samples, in `type`; weight
  /// gradients in f32. The backend must outlive the reference.
  SgemmReference(const ModelConfig& model, std::int64_t tensor, std::int64_t samples, DType type, Backend& backend);

  /// Times a training step's worth of products once more. As long as the step itself, so that interruptions by other
  /// processes meet both alike.
  void measure();

  struct Product {
    std::string name;  ///< "mlp up, forward"
    MatmulArgs args;
    int calls = 0;                 ///< in a training step of one micro-batch
    double flops = 0;              ///< all calls together
    std::vector<Seconds> samples;  ///< all calls together
  };
  const std::vector<Product>& products() const { return products_; }

  Seconds seconds() const { return median(totals_); }  ///< a step's worth of products
  double flops() const;                                ///< a step's worth of products

 private:
  void add_layers(const ModelConfig& model, std::int64_t tensor, const std::string& stack, std::int64_t rows,
                  std::int64_t layers);
  Buffer operand(std::int64_t elements, Backend& backend);
  void add(const std::string& layer, std::int64_t rows, std::int64_t out, std::int64_t in, int calls);

  Ops& ops_;
  Device& device_;
  DType type_;
  Buffer input_, output_, weight_, result_;
  std::vector<Product> products_;
  std::vector<Seconds> totals_;
};

}  // namespace megatron
