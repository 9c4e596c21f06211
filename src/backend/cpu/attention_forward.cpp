// Attention forward: FlashAttention-2 (Dao 2023). For each block of queries, the running row maximum and row sum of the
// softmax go along the blocks of keys; what was summed up before is rescaled when the maximum rises.
#include "backend/cpu/attention_distances.h"
#include "backend/cpu/attention_few_queries.h"
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

AttentionProblem problem_of(const AttentionForwardArgs& args) {
  return {"attention_forward", args.q, args.k, args.v, args.mask, args.dropout};
}

template <class Products>
std::size_t share_with(const AttentionProblem& problem) {
  return sizeof(float) * static_cast<std::size_t>(Pieces::padded(kQueryBlock * kTileStride) +
                                                  Pieces::padded(kQueryBlock * Products::row_stride(problem)) +
                                                  Products::floats(problem) + DistanceTable::floats(problem));
}

/// The larger of both kinds of products of bf16, so that a plan holds on every processor.
template <class T>
std::size_t share_of_thread(const AttentionProblem& problem) {
  const std::size_t widened = share_with<WidenedForward<T>>(problem);
  return std::is_same_v<T, BFloat16> ? std::max(widened, share_with<NativeForward>(problem)) : widened;
}

/// Queries are cut up as well where samples and heads alone would leave threads without work; each piece packs the keys
/// once more, and causal pieces are unequal.
std::int64_t query_cuts(const ThreadTeam& team, const AttentionProblem& problem) {
  const std::int64_t pairs = problem.samples * problem.key_heads;
  const std::int64_t threads = team.threads(), wanted = threads == 1 ? 1 : 4 * threads;
  return std::clamp<std::int64_t>((wanted + pairs - 1) / pairs, 1, problem.queries);
}

/// Products: WidenedForward or NativeForward, for their elements. Everything in between is float.
template <class Products>
class ForwardPass {
 public:
  using T = typename Products::Element;

  /// instructions: those of NativeForward.
  template <class... Instructions>
  ForwardPass(const AttentionForwardArgs& args, const AttentionProblem& problem, std::byte* memory,
              const Instructions&... instructions)
      : args_(args),
        problem_(problem),
        rule_(args.dropout.probability),
        pieces_(memory),
        products_(problem, args.scale, pieces_, instructions...),
        stride_(Products::row_stride(problem)),
        bias_(problem) {
    scores_ = pieces_.take(kQueryBlock * kTileStride);
    output_ = pieces_.take(kQueryBlock * stride_);
    bias_.place(pieces_.take(DistanceTable::floats(problem)));
  }

  /// The queries [first, last) of all heads that share one key head of one sample; first is a multiple of kQueryBlock.
  void run(std::int64_t sample, std::int64_t key_head, std::int64_t first, std::int64_t last) {
    products_.load_keys(sample, head_rows<T>(args_.k, sample, key_head, 0), head_rows<T>(args_.v, sample, key_head, 0));
    for (std::int64_t i = 0; i < problem_.heads_per_key_head; ++i) {
      const std::int64_t head = key_head * problem_.heads_per_key_head + i;
      if (problem_.has_distance_bias()) bias_.set_bias<T>(sample, head);
      for (std::int64_t query = first; query < last; query += kQueryBlock) {
        attend(problem_.query_block(sample, query), head);
      }
    }
  }

 private:
  void attend(const QueryBlock& block, std::int64_t head) {
    products_.load_queries(block.rows, head_rows<T>(args_.q, block.sample, head, block.first));
    std::fill_n(maximum_, kQueryBlock, -kInfinity);
    std::fill_n(sum_, kQueryBlock, 0.0f);
    std::fill_n(output_, kQueryBlock * stride_, 0.0f);
    for (std::int64_t low = products_.first_key(block.all.low); low < block.all.high; low += kKeyBlock) {
      const KeyRange tile{low, std::min(low + kKeyBlock, block.all.high)};
      if (!block.sees(tile)) continue;
      products_.multiply_keys(block.rows, tile, scores_);
      for (std::int64_t row = 0; row < block.rows; ++row) softmax_row(block, head, row, tile);
      products_.add_values(block.rows, tile, scores_, output_);
    }
    store_output(block, head);
  }

  void softmax_row(const QueryBlock& block, std::int64_t head, std::int64_t row, KeyRange tile) {
    float* scores = scores_ + row * kTileStride;
    const Columns columns = columns_of(block.visible[static_cast<std::size_t>(row)], tile);
    if (!columns.empty()) {
      if (problem_.softcap() > 0) cap_row<false>(scores, columns, problem_.softcap(), nullptr);
      const float slope = problem_.slope(head);
      if (slope != 0) {
        add_slope(scores, columns, slope * kLog2E,
                  tile.low - (problem_.query_offset(block.sample) + block.first + row));
      }
      if (problem_.has_distance_bias()) add_row(bias_.row(tile.low, block.first + row), columns, scores);
      close_row(scores, columns);
      const float maximum = row_maximum(scores, columns, maximum_[row]);
      const float correction = maximum_[row] == -kInfinity ? 1.0f : std::exp2(maximum_[row] - maximum);
      sum_[row] = sum_[row] * correction + exponentiate(scores, columns, maximum);
      maximum_[row] = maximum;
      if (correction != 1) {
        float* output = output_ + row * stride_;
        for (std::int64_t i = 0; i < problem_.head_size; ++i) output[i] *= correction;
      }
      // The sum above is of the whole softmax: dropout acts on its quotients.
      if (args_.dropout.probability > 0) {
        dropout_scales(mask_row(args_.dropout, block.sample, head, block.first + row), rule_, tile.low + columns.low,
                       columns.high - columns.low, multipliers_);
        float* probabilities = scores + columns.low;
        for (std::int64_t j = 0; j < columns.high - columns.low; ++j) probabilities[j] *= multipliers_[j];
      }
    }
    clear_outside(scores, columns, tile.high - tile.low);
  }

  void store_output(const QueryBlock& block, std::int64_t head) {
    const std::int64_t size = problem_.head_size;
    float* log_sum_exp =
        args_.log_sum_exp.as<float>() + (block.sample * problem_.heads + head) * problem_.queries + block.first;
    const Rows<T> out = head_rows<T>(args_.out, block.sample, head, block.first);
    for (std::int64_t row = 0; row < block.rows; ++row) {
      T* out_row = out.data + row * out.stride;
      if (block.visible[static_cast<std::size_t>(row)].empty()) {
        std::fill_n(out_row, size, T{});
        log_sum_exp[row] = -kInfinity;
        continue;
      }
      copy_rows(1, size, 1.0f / sum_[row], Rows<float>{output_ + row * stride_, stride_}, Rows<T>{out_row, size});
      log_sum_exp[row] = maximum_[row] * kLn2 + std::log(sum_[row]);
    }
  }

  const AttentionForwardArgs& args_;
  const AttentionProblem& problem_;
  const DropoutRule rule_;
  Pieces pieces_;
  Products products_;
  const std::int64_t stride_;  // from row to row of the output
  float *scores_, *output_;
  DistanceTable bias_;
  float maximum_[kQueryBlock], sum_[kQueryBlock];
  float multipliers_[kKeyBlock + kLanes];
};

/// Runs all passes. `share`: scratch of a thread.
template <class Products, class... Instructions>
void attend(const ThreadTeam& team, const AttentionForwardArgs& args, const AttentionProblem& problem,
            std::byte* memory, std::size_t share, const Instructions&... instructions) {
  const std::int64_t key_heads = problem.key_heads, cuts = query_cuts(team, problem);
  team.each(problem.samples * key_heads * cuts, [&](std::int64_t part, int thread) {
    const std::int64_t pair = part / cuts, piece = part % cuts;
    const auto cut = [&](std::int64_t i) { return ThreadTeam::cut(problem.queries, kQueryBlock, cuts, i); };
    if (cut(piece) == cut(piece + 1)) return;
    ForwardPass<Products>(args, problem, memory + share * static_cast<std::size_t>(thread), instructions...)
        .run(pair / key_heads, pair % key_heads, cut(piece), cut(piece + 1));
  });
}

}  // namespace

std::size_t attention_forward_bytes(const AttentionForwardArgs& args, int threads) {
  const AttentionProblem problem = problem_of(args);
  std::size_t share = 0;
  with_activation_type("attention_forward", args.q.dtype(), [&]<class T>(T) {
    share = has_few_queries(args, problem) ? few_queries_bytes(problem) : share_of_thread<T>(problem);
  });
  return share * static_cast<std::size_t>(threads);
}

void CpuOps::attention_forward(const AttentionForwardArgs& args) {
  const AttentionProblem problem = problem_of(args);
  problem.check_queries(args.out);
  problem.check_log_sum_exp(args.log_sum_exp);
  with_activation_type("attention_forward", args.q.dtype(), [&]<class T>(T) {
    if (problem.samples * problem.key_heads == 0 || problem.queries == 0) return;
    if (has_few_queries(args, problem)) {
      const std::size_t share = few_queries_bytes(problem);
      std::byte* memory = scratch(share * static_cast<std::size_t>(team_.threads()));
      return team_.each(problem.samples * problem.key_heads, [&](std::int64_t pair, int thread) {
        FewQueries<T>(args, problem, memory + share * static_cast<std::size_t>(thread))
            .run(pair / problem.key_heads, pair % problem.key_heads);
      });
    }
    const std::size_t share = share_of_thread<T>(problem);
    std::byte* memory = scratch(share * static_cast<std::size_t>(team_.threads()));
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (products_ != HalfProducts::widened) {
        return attend<NativeForward>(team_, args, problem, memory, share, native_kernel(products_));
      }
    }
    attend<WidenedForward<T>>(team_, args, problem, memory, share);
  });
}

}  // namespace megatron
