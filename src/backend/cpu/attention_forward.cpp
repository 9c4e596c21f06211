// Attention forward: FlashAttention-2 (Dao 2023). For each block of queries, the running row maximum and row sum of the
// softmax go along the blocks of keys; what was summed up before is rescaled when the maximum rises.
#include "backend/cpu/attention_distances.h"
#include "backend/cpu/attention_few_queries.h"
#include "backend/cpu/attention_tile.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/working_memory.h"
#include "backend/ops/arguments.h"

namespace megatron {

using namespace attention;

namespace {

AttentionProblem problem_of(const AttentionForwardArgs& args) {
  return {"attention_forward", args.q, args.k, args.v, args.mask, args.dropout};
}

std::size_t share_of_thread(const AttentionProblem& problem) {
  return sizeof(float) * static_cast<std::size_t>(Pieces::padded(kQueryBlock * kTileStride) +
                                                  2 * Pieces::padded(kQueryBlock * problem.head_size) +
                                                  2 * Pieces::padded(problem.keys * problem.head_size) +
                                                  DistanceTable::floats(problem));
}

/// Queries are cut up as well where samples and heads alone would leave threads without work; each piece packs the keys
/// once more, and causal pieces are unequal.
std::int64_t query_cuts(const ThreadTeam& team, const AttentionProblem& problem) {
  const std::int64_t pairs = problem.samples * problem.key_heads;
  const std::int64_t threads = team.threads(), wanted = threads == 1 ? 1 : 4 * threads;
  return std::clamp<std::int64_t>((wanted + pairs - 1) / pairs, 1, problem.queries);
}

/// T: the elements of queries, keys, values and output. They are packed as floats, and everything in between is float.
template <class T>
class ForwardPass {
 public:
  ForwardPass(const AttentionForwardArgs& args, const AttentionProblem& problem, std::byte* memory)
      : args_(args), problem_(problem), rule_(args.dropout.probability), bias_(problem) {
    Pieces pieces(memory);
    scores_ = pieces.take(kQueryBlock * kTileStride);
    queries_ = pieces.take(kQueryBlock * problem.head_size);
    output_ = pieces.take(kQueryBlock * problem.head_size);
    keys_ = pieces.take(problem.keys * problem.head_size);
    values_ = pieces.take(problem.keys * problem.head_size);
    bias_.place(pieces.take(DistanceTable::floats(problem)));
  }

  /// The queries [first, last) of all heads that share one key head of one sample; first is a multiple of kQueryBlock.
  void run(std::int64_t sample, std::int64_t key_head, std::int64_t first, std::int64_t last) {
    load_keys(sample, key_head);
    for (std::int64_t i = 0; i < problem_.heads_per_key_head; ++i) {
      const std::int64_t head = key_head * problem_.heads_per_key_head + i;
      if (problem_.has_distance_bias()) bias_.set_bias<T>(sample, head);
      for (std::int64_t query = first; query < last; query += kQueryBlock) {
        attend(problem_.query_block(sample, query), head);
      }
    }
  }

 private:
  void load_keys(std::int64_t sample, std::int64_t key_head) {
    const std::int64_t size = problem_.head_size;
    copy_rows(problem_.keys, size, 1.0f, head_rows<T>(args_.k, sample, key_head, 0), Rows<float>{keys_, size});
    copy_rows(problem_.keys, size, 1.0f, head_rows<T>(args_.v, sample, key_head, 0), Rows<float>{values_, size});
  }

  void attend(const QueryBlock& block, std::int64_t head) {
    const std::int64_t size = problem_.head_size;
    copy_rows(block.rows, size, args_.scale * kLog2E, head_rows<T>(args_.q, block.sample, head, block.first),
              Rows<float>{queries_, size});
    std::fill_n(maximum_, kQueryBlock, -kInfinity);
    std::fill_n(sum_, kQueryBlock, 0.0f);
    std::fill_n(output_, kQueryBlock * size, 0.0f);
    for (std::int64_t low = block.all.low; low < block.all.high; low += kKeyBlock) {
      const KeyRange tile{low, std::min(low + kKeyBlock, block.all.high)};
      if (!block.sees(tile)) continue;
      const std::int64_t width = tile.high - tile.low;
      sgemm(false, true, block.rows, width, size, 1.0f, {queries_, size}, {keys_ + low * size, size}, 0.0f,
            {scores_, kTileStride});
      for (std::int64_t row = 0; row < block.rows; ++row) softmax_row(block, head, row, tile);
      sgemm(false, false, block.rows, size, width, 1.0f, {scores_, kTileStride}, {values_ + low * size, size}, 1.0f,
            {output_, size});
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
        float* output = output_ + row * problem_.head_size;
        for (std::int64_t i = 0; i < problem_.head_size; ++i) output[i] *= correction;
      }
      // The sum above is of the whole softmax: dropout acts on its quotients.
      if (args_.dropout.probability > 0) {
        dropout_scales(mask_row(args_.dropout, block.sample, head, block.first + row), rule_,
                       problem_.first_key() + tile.low + columns.low, columns.high - columns.low, multipliers_);
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
      copy_rows(1, size, 1.0f / sum_[row], Rows<float>{output_ + row * size, size}, Rows<T>{out_row, size});
      log_sum_exp[row] = maximum_[row] * kLn2 + std::log(sum_[row]);
    }
  }

  const AttentionForwardArgs& args_;
  const AttentionProblem& problem_;
  const DropoutRule rule_;
  float *scores_, *queries_, *output_, *keys_, *values_;
  DistanceTable bias_;
  float maximum_[kQueryBlock], sum_[kQueryBlock];
  float multipliers_[kKeyBlock + kLanes];
};

template <class T>
void attend(const ThreadTeam& team, const AttentionForwardArgs& args, const AttentionProblem& problem,
            std::byte* memory) {
  const std::int64_t key_heads = problem.key_heads, cuts = query_cuts(team, problem);
  team.each(problem.samples * key_heads * cuts, [&](std::int64_t part, int thread) {
    const std::int64_t pair = part / cuts, piece = part % cuts;
    const auto cut = [&](std::int64_t i) { return ThreadTeam::cut(problem.queries, kQueryBlock, cuts, i); };
    if (cut(piece) == cut(piece + 1)) return;
    ForwardPass<T>(args, problem, memory + share_of_thread(problem) * static_cast<std::size_t>(thread))
        .run(pair / key_heads, pair % key_heads, cut(piece), cut(piece + 1));
  });
}

}  // namespace

std::size_t attention_forward_bytes(const AttentionForwardArgs& args, int threads) {
  const AttentionProblem problem = problem_of(args);
  const bool few = has_few_queries(args, problem);
  return (few ? few_queries_bytes(problem) : share_of_thread(problem)) * static_cast<std::size_t>(threads);
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
    attend<T>(team_, args, problem, scratch(share_of_thread(problem) * static_cast<std::size_t>(team_.threads())));
  });
}

}  // namespace megatron
