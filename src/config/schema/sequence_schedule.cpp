#include "config/schema/sequence_schedule.h"

#include <algorithm>
#include <limits>

#include "base/core/error.h"

namespace megatron {
namespace {

using Wide = __int128;

Wide power(std::int64_t base, std::int64_t exponent) {
  Wide result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) result *= base;
  return result;
}

}  // namespace

SequenceSchedule::SequenceSchedule(std::int64_t sequence_length, const Curriculum& curriculum) {
  internal_check(sequence_length > 0, "SequenceSchedule: the sequence length is positive", sequence_length);
  if (curriculum.schedule.empty()) {
    begin_level(sequence_length, 0);
  } else if (curriculum.schedule == "fixed_discrete") {
    const auto &lengths = curriculum.lengths, &until = curriculum.until;
    internal_check(lengths.size() == until.size() + 1 && lengths.back() == sequence_length,
                   "SequenceSchedule: the curriculum was checked", lengths.size(), until.size(), sequence_length);
    for (std::size_t i = 0; i < lengths.size(); ++i) begin_level(lengths[i], i == 0 ? 0 : until[i - 1]);
  } else {
    const std::int64_t growth = sequence_length - curriculum.start;
    const std::int64_t degree = curriculum.schedule == "fixed_root" ? curriculum.root_degree : 1;
    internal_check(curriculum.start > 0 && growth > 0 && growth % curriculum.multiple == 0 && curriculum.steps > 0 &&
                       degree >= 1 && degree <= kMaxRootDegree,
                   "SequenceSchedule: the curriculum was checked", curriculum.start, growth, curriculum.multiple,
                   curriculum.steps, degree);
    // A length is reached with the first t that has growth^degree · t ≥ (length − start)^degree · steps: fits 127 bits.
    const Wide whole = power(growth, degree);
    for (std::int64_t gained = 0; gained <= growth; gained += curriculum.multiple) {
      const Wide t = (power(gained, degree) * curriculum.steps + whole - 1) / whole;
      begin_level(curriculum.start + gained, t > 1 ? static_cast<std::int64_t>(t) - 1 : 0);
    }
  }
}

// The last of the levels that satisfy what the first ones do, up to some place.
template <class Condition>
const SequenceSchedule::Level& SequenceSchedule::last_level(Condition condition) const {
  return *std::prev(std::partition_point(std::next(levels_.begin()), levels_.end(), condition));
}

void SequenceSchedule::begin_level(std::int64_t length, std::int64_t first_step) {
  if (!levels_.empty() && levels_.back().first_step == first_step) levels_.pop_back();  // no step had that length
  levels_.push_back({length, first_step, levels_.empty() ? 0 : tokens_after(first_step)});
}

std::int64_t SequenceSchedule::length_of(std::int64_t step) const {
  return last_level([&](const Level& level) { return level.first_step < step; }).length;
}

std::int64_t SequenceSchedule::tokens_after(std::int64_t steps) const {
  const Level& level = last_level([&](const Level& candidate) { return candidate.first_step <= steps; });
  constexpr Wide largest = std::numeric_limits<std::int64_t>::max();
  const Wide tokens = level.first_token + Wide{steps - level.first_step} * level.length;
  return static_cast<std::int64_t>(tokens < largest ? tokens : largest);
}

std::int64_t SequenceSchedule::steps_for(std::int64_t tokens) const {
  const Level& level = last_level([&](const Level& candidate) { return candidate.first_token <= tokens; });
  return level.first_step + (tokens - level.first_token) / level.length;
}

}  // namespace megatron
