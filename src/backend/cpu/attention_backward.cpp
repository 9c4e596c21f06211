// Attention backward: FlashAttention-2 (Dao 2023). Probabilities are recomputed tile by tile from the saved
// log-sum-exp; with delta = rowsum(dout ∘ out), the gradient of the scores needs no sum over a whole row.
// Sums run in a fixed order: keys' gradients over query heads, then query blocks; queries' over key blocks; that of a
// bias of distances over queries, distances, then samples.
#include "backend/cpu/attention_distances.h"
#include "backend/cpu/attention_native.h"
#include "backend/cpu/attention_tile.h"
#include "backend/cpu/attention_widened.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/native_gemm.h"
#include "backend/cpu/working_memory.h"
#include "backend/ops/arguments.h"

namespace megatron {

using namespace attention;

namespace {

AttentionProblem problem_of(const AttentionBackwardArgs& args) {
  return {"attention_backward", args.q, args.k, args.v, args.mask, args.dropout};
}

template <class Products>
std::size_t share_with(const AttentionProblem& problem) {
  return sizeof(float) * static_cast<std::size_t>(2 * Pieces::padded(kQueryBlock * kTileStride) +
                                                  Pieces::padded(kQueryBlock * Products::row_stride(problem)) +
                                                  2 * Pieces::padded(problem.head_size) + Products::floats(problem) +
                                                  2 * DistanceTable::floats(problem));
}

/// The larger of both kinds of products of bf16, so that a plan holds on every processor.
template <class T>
std::size_t share_of_thread(const AttentionProblem& problem) {
  const std::size_t widened = share_with<WidenedBackward<T>>(problem);
  return std::is_same_v<T, BFloat16> ? std::max(widened, share_with<NativeBackward>(problem)) : widened;
}

/// The gradient of the bias of distances is summed up for each sample by itself first: [b, a, buckets].
std::size_t distance_sums(const AttentionBackwardArgs& args, const AttentionProblem& problem) {
  if (!args.ddistance_bias) return 0;
  return static_cast<std::size_t>(problem.samples * problem.heads * problem.distance_buckets());
}

/// total += the sums of every sample, in their order.
void add_samples(const AttentionProblem& problem, const float* sums, float* total) {
  const std::int64_t row = problem.heads * problem.distance_buckets();
  for (std::int64_t i = 0; i < row; ++i) {
    double sum = 0;
    for (std::int64_t sample = 0; sample < problem.samples; ++sample) {
      sum += static_cast<double>(sums[sample * row + i]);
    }
    total[i] += static_cast<float>(sum);
  }
}

/// Products: WidenedBackward or NativeBackward, for their elements. Everything in between is float.
template <class Products>
class BackwardPass {
 public:
  using T = typename Products::Element;

  /// distance_sums: [b, a, buckets], null unless the gradient of a bias of distances is wanted. instructions: those of
  /// NativeBackward.
  template <class... Instructions>
  BackwardPass(const AttentionBackwardArgs& args, const AttentionProblem& problem, std::byte* memory,
               float* distance_sums, const Instructions&... instructions)
      : args_(args),
        problem_(problem),
        rule_(args.dropout.probability),
        pieces_(memory),
        products_(problem, args.scale, pieces_, instructions...),
        stride_(Products::row_stride(problem)),
        bias_(problem),
        dbias_(problem),
        distance_sums_(distance_sums) {
    for (float** piece : {&scores_, &dscores_}) *piece = pieces_.take(kQueryBlock * kTileStride);
    dqueries_ = pieces_.take(kQueryBlock * stride_);
    for (float** piece : {&output_row_, &doutput_row_}) *piece = pieces_.take(problem.head_size);
    for (DistanceTable* table : {&bias_, &dbias_}) table->place(pieces_.take(DistanceTable::floats(problem)));
  }

  /// One key head of one sample, with all query heads that share it.
  void run(std::int64_t sample, std::int64_t key_head) {
    products_.load_keys(sample, head_rows<T>(args_.k, sample, key_head, 0), head_rows<T>(args_.v, sample, key_head, 0));
    for (std::int64_t i = 0; i < problem_.heads_per_key_head; ++i) {
      const std::int64_t head = key_head * problem_.heads_per_key_head + i;
      if (problem_.has_distance_bias()) bias_.set_bias<T>(sample, head);
      if (distance_sums_ != nullptr) dbias_.clear();
      for (std::int64_t first = 0; first < problem_.queries; first += kQueryBlock) {
        differentiate_block(problem_.query_block(sample, first), head);
      }
      if (distance_sums_ != nullptr) {
        dbias_.sum(sample, distance_sums_ + (sample * problem_.heads + head) * problem_.distance_buckets());
      }
    }
    products_.store_key_gradients(head_rows<T>(args_.dk, sample, key_head, 0),
                                  head_rows<T>(args_.dv, sample, key_head, 0));
  }

 private:
  void differentiate_block(const QueryBlock& block, std::int64_t head) {
    load_queries(block, head);
    for (std::int64_t low = products_.first_key(block.all.low); low < block.all.high; low += kKeyBlock) {
      const KeyRange tile{low, std::min(low + kKeyBlock, block.all.high)};
      if (!block.sees(tile)) continue;
      products_.multiply_keys(block.rows, tile, scores_, dscores_);
      for (std::int64_t row = 0; row < block.rows; ++row) differentiate_row(block, head, row, tile);
      products_.add_gradients(block.rows, tile, scores_, dscores_, dqueries_);
    }
    copy_rows(block.rows, problem_.head_size, args_.scale, Rows<float>{dqueries_, stride_},
              head_rows<T>(args_.dq, block.sample, head, block.first));
  }

  void load_queries(const QueryBlock& block, std::int64_t head) {
    const std::int64_t size = problem_.head_size;
    const auto rows = [&](const ConstTensor& x) { return head_rows<T>(x, block.sample, head, block.first); };
    const Rows<const T> output = rows(args_.out), doutput = rows(args_.dout);
    products_.load_queries(block.rows, rows(args_.q), doutput);
    const float* log_sum_exp =
        args_.log_sum_exp.as<float>() + (block.sample * problem_.heads + head) * problem_.queries + block.first;
    for (std::int64_t row = 0; row < block.rows; ++row) {
      const auto widen = [&](Rows<const T> x, float* to) {
        copy_rows(1, size, 1.0f, Rows<const T>{x.data + row * x.stride, x.stride}, Rows<float>{to, size});
      };
      widen(output, output_row_);
      widen(doutput, doutput_row_);
      delta_[row] = dot(size, doutput_row_, output_row_);
      reference_[row] = log_sum_exp[row] * kLog2E;
    }
    std::fill_n(dqueries_, kQueryBlock * stride_, 0.0f);
  }

  void differentiate_row(const QueryBlock& block, std::int64_t head, std::int64_t row, KeyRange tile) {
    float* scores = scores_ + row * kTileStride;
    float* dscores = dscores_ + row * kTileStride;
    const Columns columns = columns_of(block.visible[static_cast<std::size_t>(row)], tile);
    if (!columns.empty()) {
      if (problem_.softcap() > 0) cap_row<true>(scores, columns, problem_.softcap(), cap_slopes_);
      const float slope = problem_.slope(head);
      if (slope != 0) {
        add_slope(scores, columns, slope * kLog2E,
                  tile.low - (problem_.query_offset(block.sample) + block.first + row));
      }
      if (problem_.has_distance_bias()) add_row(bias_.row(tile.low, block.first + row), columns, scores);
      close_row(scores, columns);
      if (args_.dropout.probability > 0) {
        dropout_scales(mask_row(args_.dropout, block.sample, head, block.first + row), rule_,
                       problem_.first_key() + tile.low + columns.low, columns.high - columns.low, multipliers_);
        differentiate<true>(scores, dscores, multipliers_, columns, reference_[row], delta_[row]);
      } else {
        differentiate<false>(scores, dscores, multipliers_, columns, reference_[row], delta_[row]);
      }
      if (distance_sums_ != nullptr) add_row(dscores, columns, dbias_.row(tile.low, block.first + row));
      if (problem_.softcap() > 0) multiply_row(cap_slopes_, columns, dscores);
    }
    clear_outside(scores, columns, tile.high - tile.low);
    clear_outside(dscores, columns, tile.high - tile.low);
  }

  const AttentionBackwardArgs& args_;
  const AttentionProblem& problem_;
  const DropoutRule rule_;
  Pieces pieces_;
  Products products_;
  const std::int64_t stride_;  // elements between rows of dqueries_
  float *scores_, *dscores_, *dqueries_, *output_row_, *doutput_row_;
  float delta_[kQueryBlock], reference_[kQueryBlock];
  float multipliers_[kKeyBlock + kLanes] = {}, cap_slopes_[kKeyBlock + kLanes];
  DistanceTable bias_, dbias_;
  float* distance_sums_;
};

/// Runs all passes; `share` is the scratch of a thread, `sums` those of the bias of distances, or null.
template <class Products, class... Instructions>
void run_passes(const ThreadTeam& team, const AttentionBackwardArgs& args, const AttentionProblem& problem,
                std::byte* memory, std::size_t share, float* sums, const Instructions&... instructions) {
  // Not cut any finer: both keys' and queries' gradients are sums over the other.
  team.each(problem.samples * problem.key_heads, [&](std::int64_t part, int thread) {
    BackwardPass<Products>(args, problem, memory + share * static_cast<std::size_t>(thread), sums, instructions...)
        .run(part / problem.key_heads, part % problem.key_heads);
  });
  if (sums != nullptr) add_samples(problem, sums, args.ddistance_bias.as<float>());
}

}  // namespace

std::size_t attention_backward_bytes(const AttentionBackwardArgs& args, int threads) {
  const AttentionProblem problem = problem_of(args);
  std::size_t share = 0;
  with_activation_type("attention_backward", args.q.dtype(), [&]<class T>(T) { share = share_of_thread<T>(problem); });
  return share * static_cast<std::size_t>(threads) + sizeof(float) * distance_sums(args, problem);
}

void CpuOps::attention_backward(const AttentionBackwardArgs& args) {
  const AttentionProblem problem = problem_of(args);
  for (const ConstTensor& x : {args.dout, args.out, static_cast<const ConstTensor&>(args.dq)}) problem.check_queries(x);
  for (const ConstTensor& x : {args.dk, args.dv}) problem.check_keys(x);
  problem.check_log_sum_exp(args.log_sum_exp);
  problem.check_distance_gradient(args.ddistance_bias, args.mask);
  with_activation_type("attention_backward", args.q.dtype(), [&]<class T>(T) {
    const std::size_t share = share_of_thread<T>(problem), shares = share * static_cast<std::size_t>(team_.threads());
    std::byte* memory = scratch(shares + sizeof(float) * distance_sums(args, problem));
    float* sums = args.ddistance_bias ? reinterpret_cast<float*>(memory + shares) : nullptr;
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (products_ != HalfProducts::widened) {
        return run_passes<NativeBackward>(team_, args, problem, memory, share, sums, native_kernel(products_));
      }
    }
    run_passes<WidenedBackward<T>>(team_, args, problem, memory, share, sums);
  });
}

}  // namespace megatron
