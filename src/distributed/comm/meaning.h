// TensorMeaning: what a tensor is over the ranks of a group. Every call that communicates says it, with a row of the
// table below; a call that says nothing, or what its verb cannot take, does not compile. Says, and does nothing: a
// check of collectives reads it (distributed/parallel/checked_collectives.h), where one is on.
#pragma once

#include "base/core/error.h"
#include "distributed/comm/group.h"

namespace megatron {

enum class Reduce { sum, maximum };

/// State of a tensor over the ranks of a group.
///
/// | verb                       | takes   | gives                |
/// | all_reduce                 | partial | replicated           |
/// | reduce_scatter             | partial | divided              |
/// | all_gather                 | divided | replicated           |
/// | all_to_all                 | divided | divided, another way |
/// | broadcast, send, receive   | own     | what the sender has  |
enum class Hold {
  replicated,  ///< each the same bits
  partial,     ///< each a share of a sum, or of a maximum
  divided,     ///< each another part
  own,         ///< each its own
  any          ///< anything: decisions, reports, measurements
};

/// Whether ranks can have equal shares or parts that are right: numbers of tokens, say.
enum class Equal { never, by_chance };

struct MeaningRow {
  const char* what;  ///< for errors
  Group group;
  Hold hold;
  Reduce reduce;
  Equal equal;
};

template <Hold kHold>
struct TensorMeaning : MeaningRow {
  constexpr TensorMeaning(const char* tensor, Group ranks, Reduce by = Reduce::sum, Equal shares = Equal::never)
      : MeaningRow{tensor, ranks, kHold, by, shares} {}
};

/// A meaning and the line that says it.
struct Statement {
  const MeaningRow* meaning;
  SourcePlace where;
};

/// One that a verb takes: of this kind, or any. Meanings become it where the verb is called.
template <Hold kHold>
struct Holding : Statement {
  constexpr Holding(const TensorMeaning<kHold>& row, SourcePlace at = SourcePlace::current()) : Statement{&row, at} {}
  constexpr Holding(const TensorMeaning<Hold::any>& row, SourcePlace at = SourcePlace::current())
      : Statement{&row, at} {}
};
/// One of any kind, where nothing is moved.
struct Said : Statement {
  template <Hold kHold>
  constexpr Said(const TensorMeaning<kHold>& row, SourcePlace at = SourcePlace::current()) : Statement{&row, at} {}
};

using Replicated = TensorMeaning<Hold::replicated>;
using Partial = TensorMeaning<Hold::partial>;
using Divided = TensorMeaning<Hold::divided>;
using Own = TensorMeaning<Hold::own>;
using Any = TensorMeaning<Hold::any>;

// Numbers that no model is computed from.
inline constexpr Any kDecision{"a decision", Group::any, Reduce::maximum};
inline constexpr Any kReport{"a report", Group::any};
inline constexpr Any kReportMaximum{"a maximum of a report", Group::any, Reduce::maximum};
/// For a communicator that passes a call on to another one: what the tensor means was said to the first.
inline constexpr Any kPassedOn{"what was said above", Group::any};
inline constexpr Any kPassedOnMaximum{"what was said above", Group::any, Reduce::maximum};
constexpr const Any& passed_on(Reduce reduce) {
  return reduce == Reduce::sum ? kPassedOn : kPassedOnMaximum;
}

}  // namespace megatron
