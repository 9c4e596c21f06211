// Attention backward: FlashAttention-2 (Dao 2023). Probabilities are recomputed tile by tile from the saved
// log-sum-exp; with delta = rowsum(dout ∘ out), the gradient of the scores needs no sum over a whole row.
// Sums run in a fixed order: keys' gradients over query heads, then query blocks; queries' over key blocks; that of a
// bias of distances over queries, distances, then samples.
#include "backend/cpu/attention_distances.h"
#include "backend/cpu/attention_tile.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/working_memory.h"
#include "backend/ops/arguments.h"

namespace megatron {

using namespace attention;

namespace {

AttentionProblem problem_of(const AttentionBackwardArgs& args) {
  return {"attention_backward", args.q, args.k, args.v, args.mask, args.dropout};
}

std::size_t share_of_thread(const AttentionProblem& problem) {
  return sizeof(float) * static_cast<std::size_t>(2 * Pieces::padded(kQueryBlock * kTileStride) +
                                                  3 * Pieces::padded(kQueryBlock * problem.head_size) +
                                                  4 * Pieces::padded(problem.keys * problem.head_size) +
                                                  2 * DistanceTable::floats(problem));
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

/// T: the elements of queries, keys, values, output and their gradients. They are packed as floats, and everything in
/// between is float.
template <class T>
class BackwardPass {
 public:
  /// distance_sums: [b, a, buckets], null unless the gradient of a bias of distances is wanted.
  BackwardPass(const AttentionBackwardArgs& args, const AttentionProblem& problem, std::byte* memory,
               float* distance_sums)
      : args_(args),
        problem_(problem),
        rule_(args.dropout.probability),
        bias_(problem),
        dbias_(problem),
        distance_sums_(distance_sums) {
    Pieces pieces(memory);
    scores_ = pieces.take(kQueryBlock * kTileStride);
    dscores_ = pieces.take(kQueryBlock * kTileStride);
    for (float** piece : {&queries_, &dqueries_, &doutput_}) *piece = pieces.take(kQueryBlock * problem.head_size);
    for (float** piece : {&keys_, &values_, &dkeys_, &dvalues_}) *piece = pieces.take(problem.keys * problem.head_size);
    for (DistanceTable* table : {&bias_, &dbias_}) table->place(pieces.take(DistanceTable::floats(problem)));
  }

  /// One key head of one sample, with all query heads that share it.
  void run(std::int64_t sample, std::int64_t key_head) {
    load_keys(sample, key_head);
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
    store_key_gradients(sample, key_head);
  }

 private:
  void load_keys(std::int64_t sample, std::int64_t key_head) {
    const std::int64_t size = problem_.head_size;
    copy_rows(problem_.keys, size, 1.0f, head_rows<T>(args_.k, sample, key_head, 0), Rows<float>{keys_, size});
    copy_rows(problem_.keys, size, 1.0f, head_rows<T>(args_.v, sample, key_head, 0), Rows<float>{values_, size});
    std::fill_n(dkeys_, problem_.keys * size, 0.0f);
    std::fill_n(dvalues_, problem_.keys * size, 0.0f);
  }

  void store_key_gradients(std::int64_t sample, std::int64_t key_head) {
    const std::int64_t size = problem_.head_size;
    // The packed queries carried scale · log2(e); the gradient wants scale.
    copy_rows(problem_.keys, size, kLn2, Rows<float>{dkeys_, size}, head_rows<T>(args_.dk, sample, key_head, 0));
    copy_rows(problem_.keys, size, 1.0f, Rows<float>{dvalues_, size}, head_rows<T>(args_.dv, sample, key_head, 0));
  }

  void differentiate_block(const QueryBlock& block, std::int64_t head) {
    const std::int64_t size = problem_.head_size;
    load_queries(block, head);
    for (std::int64_t low = block.all.low; low < block.all.high; low += kKeyBlock) {
      const KeyRange tile{low, std::min(low + kKeyBlock, block.all.high)};
      if (!block.sees(tile)) continue;
      const std::int64_t width = tile.high - tile.low, offset = low * size;
      const Matrix scores{scores_, kTileStride}, dscores{dscores_, kTileStride};
      const ConstMatrix probabilities{scores_, kTileStride}, gradient{dscores_, kTileStride};
      sgemm(false, true, block.rows, width, size, 1.0f, {queries_, size}, {keys_ + offset, size}, 0.0f, scores);
      sgemm(false, true, block.rows, width, size, 1.0f, {doutput_, size}, {values_ + offset, size}, 0.0f, dscores);
      for (std::int64_t row = 0; row < block.rows; ++row) differentiate_row(block, head, row, tile);
      sgemm(true, false, width, size, block.rows, 1.0f, probabilities, {doutput_, size}, 1.0f,
            {dvalues_ + offset, size});
      sgemm(true, false, width, size, block.rows, 1.0f, gradient, {queries_, size}, 1.0f, {dkeys_ + offset, size});
      sgemm(false, false, block.rows, size, width, 1.0f, gradient, {keys_ + offset, size}, 1.0f, {dqueries_, size});
    }
    copy_rows(block.rows, size, args_.scale, Rows<float>{dqueries_, size},
              head_rows<T>(args_.dq, block.sample, head, block.first));
  }

  void load_queries(const QueryBlock& block, std::int64_t head) {
    const std::int64_t size = problem_.head_size;
    const auto pack = [&](float factor, const ConstTensor& x, float* to) {
      copy_rows(block.rows, size, factor, head_rows<T>(x, block.sample, head, block.first), Rows<float>{to, size});
    };
    pack(args_.scale * kLog2E, args_.q, queries_);
    pack(1.0f, args_.dout, doutput_);
    pack(1.0f, args_.out, dqueries_);  // only until delta is known
    const float* log_sum_exp =
        args_.log_sum_exp.as<float>() + (block.sample * problem_.heads + head) * problem_.queries + block.first;
    for (std::int64_t row = 0; row < block.rows; ++row) {
      delta_[row] = dot(size, doutput_ + row * size, dqueries_ + row * size);
      reference_[row] = log_sum_exp[row] * kLog2E;
    }
    std::fill_n(dqueries_, kQueryBlock * size, 0.0f);
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
  float *scores_, *dscores_, *queries_, *dqueries_, *doutput_, *keys_, *values_, *dkeys_, *dvalues_;
  float delta_[kQueryBlock], reference_[kQueryBlock];
  float multipliers_[kKeyBlock + kLanes] = {}, cap_slopes_[kKeyBlock + kLanes];
  DistanceTable bias_, dbias_;
  float* distance_sums_;
};

}  // namespace

std::size_t attention_backward_bytes(const AttentionBackwardArgs& args, int threads) {
  const AttentionProblem problem = problem_of(args);
  return share_of_thread(problem) * static_cast<std::size_t>(threads) + sizeof(float) * distance_sums(args, problem);
}

void CpuOps::attention_backward(const AttentionBackwardArgs& args) {
  const AttentionProblem problem = problem_of(args);
  for (const ConstTensor& x : {args.dout, args.out, static_cast<const ConstTensor&>(args.dq)}) problem.check_queries(x);
  for (const ConstTensor& x : {args.dk, args.dv}) problem.check_keys(x);
  problem.check_log_sum_exp(args.log_sum_exp);
  problem.check_distance_gradient(args.ddistance_bias, args.mask);
  const std::size_t share = share_of_thread(problem);
  with_activation_type("attention_backward", args.q.dtype(), [&]<class T>(T) {
    const std::size_t shares = share * static_cast<std::size_t>(team_.threads());
    std::byte* memory = scratch(shares + sizeof(float) * distance_sums(args, problem));
    float* sums = args.ddistance_bias ? reinterpret_cast<float*>(memory + shares) : nullptr;
    // Not cut any finer: both keys' and queries' gradients are sums over the other.
    team_.each(problem.samples * problem.key_heads, [&](std::int64_t part, int thread) {
      BackwardPass<T>(args, problem, memory + share * static_cast<std::size_t>(thread), sums)
          .run(part / problem.key_heads, part % problem.key_heads);
    });
    if (sums != nullptr) add_samples(problem, sums, args.ddistance_bias.as<float>());
  });
}

}  // namespace megatron
