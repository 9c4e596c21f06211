// Part of Optimizer: parameters of rules that need whole matrices.
#include <algorithm>

#include "distributed/comm/meanings.h"
#include "training/optimizer/optimizer.h"

namespace megatron {

// Takes the parts of matrices out of the others. With shards a bucket is gathered by all of its copies or by none,
// whichever of them have a part of a matrix, and all take as much scratch.
void Optimizer::list_matrices() {
  std::vector<DirectedMatrix> all;
  for (const Parameter& parameter : store_.all()) {
    const MatrixUpdate* const rule = groups_.of(parameter).rule->update_matrix;
    if (rule != nullptr) all.push_back({&parameter, rule});
  }
  matrices_.resize(owned_.size());
  if (all.empty()) return;
  internal_check(gathers_ != nullptr && scratch_ != nullptr, "updates of whole matrices need gathers and scratch");
  const Communicator& tensor = gathers_->grid().tensor();
  matrix_bytes_ = whole_matrix_bytes(tensor, all);
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    std::vector<Part> parts;
    for (const Part& part : parts_[i]) {
      if (part.matrix.parameter != nullptr) parts.push_back(part);
    }
    std::erase_if(parts_[i], [](const Part& part) { return part.matrix.parameter != nullptr; });
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part& a, const Part& b) { return a.matrix.before(b.matrix); });
    if (store_.sharded()) {
      const auto in_bucket = [&](const DirectedMatrix& matrix) {
        return !ParameterStore::parts_in(*matrix.parameter, {store_.buckets()[i]}).empty();
      };
      if (std::any_of(all.begin(), all.end(), in_bucket)) matrices_[i].push_back({owned_[i].count, {}, {}});
    }
    for (const Part& part : parts) add_matrix(matrices_[i], part, static_cast<std::size_t>(tensor.size()));
  }
}

// Without shards as many at a time as the tensor ranks work on together.
void Optimizer::add_matrix(std::vector<Matrices>& matrices, const Part& part, std::size_t ranks) const {
  const bool together = store_.sharded() || (!matrices.empty() && matrices.back().whole.back().is_cut() &&
                                             part.matrix.is_cut() && matrices.back().whole.size() < ranks);
  if (!together) matrices.emplace_back();
  Matrices& last = matrices.back();
  if (!store_.sharded()) last.elements += part.range.count;
  last.parts.push_back(part);
  last.whole.push_back(part.matrix);
}

// Directions take the place of gradients, since a rank has room there for those of its whole bucket, and gradients come
// back at the end. With shards every rank makes the matrices whole that it has a part of.
void Optimizer::update_matrices(std::size_t index, const Matrices& matrices, const UpdateSettings& settings,
                                ConstTensor factor, ConstTensor skip) {
  const ArenaScope scope(*scratch_);
  const Tensor kept = scratch_->allocate("gradients of matrices", {matrices.elements}, DType::f32);
  {
    const ArenaScope largest(*scratch_);
    scratch_->allocate("updates of matrices", {static_cast<std::int64_t>(matrix_bytes_)}, DType::u8);
  }
  std::int64_t first = 0;
  for (const Part& part : matrices.parts) {
    UpdateArgs args = update_of(part, settings, factor, skip);
    const Tensor gradient = kept.slice(0, first, part.range.count), direction = gradients_of(part.range);
    ops_.copy(args.gradient, gradient);
    args.gradient = gradient;
    part.matrix.rule->direct(ops_, *scratch_, part.how.settings->optimizer, args, direction);
    first += part.range.count;
  }
  const ProcessGrid& grid = gathers_->grid();
  if (store_.sharded()) {
    const Bucket& bucket = store_.buckets()[index];
    grid.copies(bucket.copies)
        .all_gather(gradients_of(owned_[index]), gradients_of(bucket),
                    bucket.copies == CopyGroup::experts ? kExpertBucketDirections : kBucketDirections);
  }
  make_whole(ops_, grid.tensor(), *scratch_, matrices.whole);
  first = 0;
  for (const Part& part : matrices.parts) {
    const UpdateArgs args = update_of(part, settings, factor, skip);
    part.matrix.rule->apply(ops_, *scratch_, part.how.settings->optimizer, args, part.matrix.parameter->global_shape);
    ops_.copy(kept.slice(0, first, part.range.count), gradients_of(part.range));
    first += part.range.count;
    gathers_->progress();
  }
}

}  // namespace megatron
