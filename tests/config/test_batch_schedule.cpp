#include <limits>

#include "config/schema/batch_schedule.h"
#include "config_support.h"

using namespace megatron;

TEST_CASE("without ramp-up every batch is the same", "[config]") {
  const BatchSchedule schedule(48);
  CHECK(schedule.batch_at(0) == 48);
  CHECK(schedule.batch_at(1'000'000'000'000) == 48);
  CHECK(schedule.samples_after(10) == 480);
  CHECK(schedule.steps_for(479) == 9);
  CHECK(schedule.steps_for(480) == 10);
  CHECK(schedule.steps_for(0) == 0);
  CHECK(schedule.ramp_steps() == 0);
  CHECK(schedule.sizes() == std::vector<std::int64_t>{48});
  CHECK(schedule.completions(10, 480) == 1);
  CHECK(schedule.completions(9, 480) == 0);
  CHECK(schedule.completions(10, 47) == 10);  // a step that completes two is one
  CHECK(BatchSchedule(1 << 30).samples_after(1'000'000'000'000) == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("the published ramp-up of the 175B run", "[config]") {
  const BatchSchedule schedule(1536, {16, 16, 5859375});
  CHECK(schedule.ramp_steps() == 19802);
  CHECK(schedule.ramp_samples() == 5859424);
  CHECK(schedule.samples_after(19802) == 5859424);
  CHECK(schedule.samples_after(19801) <= 5859375);
  CHECK(schedule.steps_for(146484375) == 111354);
  CHECK(schedule.batch_at(0) == 16);
  CHECK(schedule.batch_at(61677) == 16);
  CHECK(schedule.batch_at(61678) == 32);  // 5859375 / 95 = 61677.63
  CHECK(schedule.batch_at(5859374) == 1520);
  CHECK(schedule.batch_at(5859375) == 1536);
  CHECK(schedule.sizes().size() == 96);
}

TEST_CASE("ramp-ups agree with stepping one batch at a time", "[config]") {
  const BatchRampUp ramps[] = {{2, 2, 100}, {1, 3, 7}, {4, 4, 1}, {8, 4, 1000}, {2, 14, 33}, {15, 1, 5}, {1, 1, 20}};
  for (const BatchRampUp& ramp : ramps) {
    CAPTURE(ramp.start, ramp.increment, ramp.samples);
    const BatchSchedule schedule(16, ramp);
    std::int64_t consumed = 0, completed[3] = {};
    const std::int64_t periods[3] = {5, 33, 400};
    for (std::int64_t step = 0; step < 400; ++step) {
      for (int i = 0; i < 3; ++i) REQUIRE(schedule.completions(step, periods[i]) == completed[i]);
      REQUIRE(schedule.samples_after(step) == consumed);
      const std::int64_t k = (16 - ramp.start) / ramp.increment;
      const std::int64_t batch =
          consumed >= ramp.samples ? 16 : ramp.start + consumed * k / ramp.samples * ramp.increment;
      REQUIRE(schedule.batch_at(consumed) == batch);
      for (std::int64_t extra = 0; extra < batch; ++extra) REQUIRE(schedule.steps_for(consumed + extra) == step);
      for (int i = 0; i < 3; ++i) completed[i] += (consumed + batch) / periods[i] > consumed / periods[i];
      consumed += batch;
    }
  }
}
