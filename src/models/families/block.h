// One transformer block. Pre-norm: x + dropout(attention(norm(x)) + bias), then the same with the MLP; or both parts
// read x and are added to it (parallel residual, Wang & Komatsuzaki 2021). Post-norm: norm(x + dropout(attention(x) +
// bias)), then the same with the MLP (Devlin et al. 2018). A decoder's block that sees an encoder has cross-attention
// between the two, in the same form; pre-norm and sequential alone. In place of the MLP may be a mixture of experts, in
// any of these forms.
#pragma once

#include <optional>
#include <string>

#include "models/attention/cross_attention.h"
#include "models/experts/expert_layer.h"
#include "models/layers/mlp.h"
#include "models/layers/norm.h"

namespace megatron {

enum class Residual {
  sequential,         ///< the MLP reads what attention has added to
  parallel,           ///< both read the block's input, each through a norm
  parallel_one_norm,  ///< both through attention's norm
  post_norm           ///< as sequential, and each part's sum goes through its norm
};

struct BlockSizes {
  AttentionSizes attention;
  MlpSizes mlp;
  std::optional<ExpertLayerSizes> moe = {};  ///< in place of the MLP
  NormSizes norm;
  Residual residual = Residual::sequential;
  bool cross_attention = false;  ///< to context.memory, of attention's sizes
  double hidden_dropout = 0;
  bool keeps_norms = true;  ///< false: backward makes their outputs again, and products that read them run at once
};

/// A recomputed block keeps its input alone: the rest that its backward reads lies in scratch while forward runs, is
/// given back, and is computed again there by backward, one block at a time. The bits are the same, since dropout masks
/// are functions of (seed, step, site, sample), not of when they are drawn. Nothing outside this class knows of it. The
/// weight gradients of such a block run at once.
///
/// Any other block keeps what its sizes say (keeps_norms, MlpSizes::kept). Backward makes what it lacks in scratch,
/// just before it goes through the part of the block that reads it.
class Block {
 public:
  struct CrossSaved {
    Norm::Saved norm;
    CrossAttention::Saved attention;
  };
  struct Saved {                           // a recomputed block's: the input, attention_norm.x, alone
    Norm::Saved attention_norm, mlp_norm;  // the latter absent where both parts read one norm
    Attention::Saved attention;
    CrossSaved* cross = nullptr;  // the caller's, in a block with cross-attention; few blocks need one, many are kept
    Mlp::Saved mlp;
    ExpertLayer::Saved* moe = nullptr;  // in a block with experts, instead of the MLP's: as `cross`
  };

  /// Declares NAME.{attention_norm,attention,cross_attention_norm,cross_attention,mlp_norm,mlp}.…, without mlp_norm
  /// where both parts read one norm, and with moe in place of mlp where there are experts; `layer` is the global index,
  /// from 0.
  Block(ParameterBuilder& builder, const std::string& name, const BlockSizes& sizes, std::int64_t layer,
        bool recompute = false);

  std::int64_t layer() const { return layer_; }
  const Attention& attention() const { return attention_; }
  bool has_cross_attention() const { return cross_attention_.has_value(); }
  const CrossAttention& cross_attention() const { return *cross_attention_; }  ///< if it has one
  bool has_experts() const { return moe_.has_value(); }

  /// x [s(/t), b, h] -> y, allocated by the caller (in context.saved: the next block's x). x must live until backward.
  void forward(Context& context, ConstTensor x, Tensor y, Saved& saved) const;
  /// Sets dx (may alias dy); adds all parameters' gradients.
  void backward(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;

 private:
  // The forward up to the last projection, which backward does not need. Parallel parts add up in y: it is set to x
  // with attention added, unless it is absent. Post-norm blocks are not among these: their last norm's backward reads
  // the last projection.
  void activate(Context& context, ConstTensor x, Tensor y, Saved& saved) const;
  // Memory for a norm's output: kept, or if norms are not, `shared`, which all have in turn.
  Tensor norm_output(Context& context, const char* what, const Shape& shape, Tensor shared) const;
  /// x with cross-attention added, in context.saved.
  ConstTensor add_cross_attention(Context& context, ConstTensor x, Tensor shared, Saved& saved) const;
  void run(Context& context, ConstTensor x, Tensor y, Saved& saved) const;
  void run_post_norm(Context& context, ConstTensor x, Tensor y, Saved& saved) const;
  void run_back(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;
  void run_back_post_norm(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;
  /// dx becomes the gradient of what cross-attention was added to.
  void cross_attention_back(Context& context, const Saved& saved, Tensor dx) const;
  // The MLP, or the experts in its place: forward up to the last projection, that projection without a bias, the bias
  // that is added with the residual (experts add theirs themselves), and the backward of all, bias and dropout
  // included.
  void activate_feed_forward(Context& context, ConstTensor x, Saved& saved) const;
  void project_feed_forward(Context& context, const Saved& saved, Tensor y) const;
  ConstTensor feed_forward_bias() const { return mlp_ ? mlp_->down().bias() : ConstTensor(); }
  void feed_forward_back(Context& context, ConstTensor dy, const Saved& saved, Tensor dx) const;
  // The output of a norm, for the backward of what has read it: `kept`, or made again in scratch, which `context` then
  // tells to layers.
  ConstTensor input_again(Context& context, const Norm& norm, const Norm::Saved& saved, ConstTensor kept) const;
  // The gradient of dropout(f + bias) with respect to f, as a weight product can read it: dy itself where nothing is
  // dropped and the product runs at once. Adds the bias' gradient.
  ConstTensor through_dropout(Context& context, ConstTensor dy, Tensor dbias, LayerSite site) const;

  const ParameterStore* store_;
  int first_parameter_;
  BlockSizes sizes_;
  std::int64_t layer_;
  bool recompute_;
  Norm attention_norm_;
  Attention attention_;
  std::optional<Norm> cross_attention_norm_;
  std::optional<CrossAttention> cross_attention_;
  std::optional<Norm> mlp_norm_;
  std::optional<Mlp> mlp_;
  std::optional<ExpertLayer> moe_;
  int last_parameter_;
};

}  // namespace megatron
