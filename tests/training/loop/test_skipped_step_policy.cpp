// Decisions about skipped steps, without a run.
#include "base/core/error.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "training/loop/skipped_step_policy.h"

using namespace megatron;
using namespace megatron::test;

namespace {

SkipAction good(SkippedStepPolicy& policy) {
  return policy.observe(false, false, false);
}

SkipAction bad(SkippedStepPolicy& policy, bool ends = false) {
  return policy.observe(true, false, ends);
}

SkipAction overflow(SkippedStepPolicy& policy, bool ends = false) {
  return policy.observe(true, true, ends);
}

}  // namespace

TEST_CASE("skipped steps: the first is explained and others told until the last") {
  SkippedStepPolicy policy(4);
  CHECK(good(policy) == SkipAction::none);
  CHECK(bad(policy) == SkipAction::explain);
  policy.explained(false);
  CHECK(bad(policy) == SkipAction::warn);
  CHECK(bad(policy, /*ends=*/true) == SkipAction::explain);
  CHECK(bad(policy) == SkipAction::give_up);
  CHECK(policy.in_a_row() == 4);
}

TEST_CASE("skipped steps: a good one ends the row, and the next row is explained") {
  SkippedStepPolicy policy(2);
  CHECK(bad(policy) == SkipAction::explain);
  policy.explained(false);
  CHECK(good(policy) == SkipAction::none);
  CHECK(policy.in_a_row() == 0);
  CHECK(bad(policy) == SkipAction::explain);
  CHECK(policy.in_all() == 2);
  CHECK(policy.since_line() == 2);
  policy.begin_line();
  CHECK(policy.since_line() == 0);
  CHECK(policy.in_all() == 2);
}

TEST_CASE("skipped steps: a search is only counted until too long or the run ends") {
  SkippedStepPolicy policy(3);
  CHECK(overflow(policy) == SkipAction::search);
  CHECK(overflow(policy) == SkipAction::search);
  CHECK(overflow(policy) == SkipAction::give_up);
  policy.explained(true);  // a smaller loss scale is all it takes
  CHECK(policy.in_a_row() == 0);
  CHECK(overflow(policy) == SkipAction::search);
  CHECK(overflow(policy, /*ends=*/true) == SkipAction::explain);
  policy.explained(false);
  CHECK(policy.in_a_row() == 2);
  CHECK(overflow(policy) == SkipAction::give_up);
}

TEST_CASE("skipped steps: a resumed run counts on, and nonsense is refused") {
  SkippedStepPolicy first(3), second(3);
  bad(first);
  first.explained(false);
  bad(first);
  second.set_state(first.state(), 5);
  CHECK(second.state() == first.state());
  CHECK(bad(second) == SkipAction::give_up);
  require_error(ErrorKind::checkpoint, {"skipped_in_a_row"}, [&] { second.set_state({{"skipped_in_a_row", 6}}, 5); });
}
