// Part of Optimizer: parameters of rules that need whole matrices.
#include <algorithm>

#include "training/optimizer/optimizer.h"

namespace megatron {

// Takes matrices out of the other parts.
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
  const auto ranks = static_cast<std::size_t>(tensor.size());
  matrix_bytes_ = whole_matrix_bytes(tensor, all);
  gradient_room_ = largest_together(all, ranks);
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    std::vector<Part> parts;
    for (const Part& part : parts_[i]) {
      if (part.matrix.parameter == nullptr) continue;
      internal_check(part.range.count == part.matrix.parameter->elements(), "a matrix that shards cut",
                     part.matrix.parameter->name);
      parts.push_back(part);
    }
    std::erase_if(parts_[i], [](const Part& part) { return part.matrix.parameter != nullptr; });
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part& a, const Part& b) { return a.matrix.before(b.matrix); });
    for (const Part& part : parts) {
      std::vector<Matrices>& groups = matrices_[i];
      const bool joins = !groups.empty() && groups.back().whole.back().is_cut() && part.matrix.is_cut() &&
                         groups.back().whole.size() < ranks;
      if (!joins) groups.emplace_back();
      groups.back().parts.push_back(part);
      groups.back().whole.push_back(part.matrix);
    }
  }
}

// Sets the direction of a part in its gradient's place. `gradient`: f32 [count], a copy.
void Optimizer::direct(const Part& part, ConstTensor gradient, const UpdateSettings& settings, ConstTensor factor,
                       ConstTensor skip) {
  const std::int64_t most = most_at_a_time(part.range);
  for (std::int64_t first = 0; first < part.range.count; first += most) {
    const FlatRange chunk{part.range.first + first, std::min(most, part.range.count - first)};
    use(chunk, {}, states_in(section_of(chunk), chunk));
    by_pieces(part, chunk, [&](const FlatRange& range, const StateDraws& draws) {
      UpdateArgs args = update_of(part, range, draws, settings, factor, skip);
      args.gradient = gradient.slice(0, range.first - part.range.first, range.count);
      part.matrix.rule->direct(ops_, *scratch_, part.how.settings->optimizer, args, gradients_of(range));
    });
  }
}

void Optimizer::take_matrix_scratch() {
  if (matrix_bytes_ == 0) return;
  const ArenaScope scope(*scratch_);
  scratch_->allocate("gradients of matrices", {gradient_room_}, DType::f32);
  scratch_->allocate("updates of matrices", {static_cast<std::int64_t>(matrix_bytes_)}, DType::u8);
}

// Directions take the place of gradients, which come back at the end.
void Optimizer::update_matrices(const Matrices& matrices, const UpdateSettings& settings, ConstTensor factor,
                                ConstTensor skip) {
  const ArenaScope scope(*scratch_);
  const Tensor kept = scratch_->allocate("gradients of matrices", {gradient_room_}, DType::f32);
  std::int64_t first = 0;
  for (const Part& part : matrices.parts) {
    const Tensor gradient = kept.slice(0, first, part.range.count);
    ops_.copy(gradients_of(part.range), gradient);
    direct(part, gradient, settings, factor, skip);
    first += part.range.count;
  }
  make_whole(ops_, gathers_->grid().tensor(), *scratch_, matrices.whole);
  first = 0;
  for (const Part& part : matrices.parts) {
    const std::int64_t most = cached(most_at_a_time(part.range));
    for (std::int64_t begin = 0; begin < part.range.count; begin += most) {
      const FlatRange chunk{part.range.first + begin, std::min(most, part.range.count - begin)};
      const UpdateArgs args = update_of(part, chunk, {}, settings, factor, skip);
      use(chunk, args.value, {});
      part.matrix.rule->apply(ops_, *scratch_, part.how.settings->optimizer, args, part.matrix.parameter->global_shape);
      if (sets_values_at_once(chunk)) set_values(chunk);
    }
    ops_.copy(kept.slice(0, first, part.range.count), gradients_of(part.range));
    first += part.range.count;
    gathers_->progress();
  }
}

}  // namespace megatron
