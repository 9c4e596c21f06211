#include "support/catch.h"
#include "support/require_error.h"
#include "training/optimizer/loss_scaler.h"

using namespace megatron;
using megatron::test::require_error;

namespace {

constexpr LossScalerSettings kDynamic{.constant = 0};

void good_steps(LossScaler& scaler, int count) {
  for (int i = 0; i < count; ++i) scaler.update(false);
}

}  // namespace

TEST_CASE("the loss scale comes down from 2^32 and grows as Megatron's does", "[fault-35]") {
  LossScaler scaler(kDynamic);
  CHECK(scaler.scale() == 0x1p32);
  scaler.update(true);  // the first overflow only uses up the hysteresis
  CHECK(scaler.scale() == 0x1p32);
  scaler.update(true);
  CHECK(scaler.scale() == 0x1p31);
  scaler.update(true);  // the hysteresis is not refilled
  CHECK(scaler.scale() == 0x1p30);

  good_steps(scaler, 999);
  CHECK(scaler.scale() == 0x1p30);
  scaler.update(true);  // the window begins anew
  CHECK(scaler.scale() == 0x1p29);
  good_steps(scaler, 999);
  CHECK(scaler.scale() == 0x1p29);
  good_steps(scaler, 1);
  CHECK(scaler.scale() == 0x1p30);

  // Growing has refilled the hysteresis.
  CHECK(scaler.state().hysteresis_left == 2);
  scaler.update(true);
  CHECK(scaler.scale() == 0x1p30);
  scaler.update(true);
  CHECK(scaler.scale() == 0x1p29);
  good_steps(scaler, 2000);
  CHECK(scaler.scale() == 0x1p31);
}

TEST_CASE("the loss scale has a floor and a ceiling") {
  LossScaler scaler({.constant = 0, .initial = 12, .minimum = 4, .window = 2, .hysteresis = 1});
  CHECK(scaler.searching());
  scaler.update(true);
  CHECK(scaler.scale() == 6);
  scaler.update(true);
  CHECK(scaler.scale() == 4);  // not 3
  CHECK_FALSE(scaler.searching());
  for (int i = 0; i < 100; ++i) scaler.update(true);
  CHECK(scaler.scale() == 4);
  good_steps(scaler, 2);
  CHECK(scaler.scale() == 8);
  good_steps(scaler, 1000);
  CHECK(scaler.scale() == LossScaler::kLargest);
}

TEST_CASE("loss scaler: a constant scale ignores overflows and checkpoints") {
  LossScaler scaler({.constant = 128});
  scaler.update(true);
  scaler.update(true);
  good_steps(scaler, 5000);
  scaler.set_state({.scale = 2, .good_steps = 1, .hysteresis_left = 1});
  CHECK(scaler.scale() == 128);
  CHECK_FALSE(scaler.searching());
  CHECK_FALSE(scaler.dynamic());
  CHECK(LossScaler({}).scale() == 1);
}

TEST_CASE("loss scaler: a checkpoint resumes within a window or is refused", "[fault-35]") {
  const LossScalerSettings settings{.constant = 0, .initial = 256, .window = 7, .hysteresis = 3};
  const auto bad = [](int step) { return step % 19 == 3 || step % 19 == 4 || step % 31 == 9; };
  for (int stop = 1; stop < 120; ++stop) {
    LossScaler straight(settings), before(settings), after({.constant = 0, .initial = 2, .window = 7, .hysteresis = 3});
    for (int step = 0; step < 120; ++step) {
      straight.update(bad(step));
      (step < stop ? before : after).update(bad(step));
      if (step + 1 == stop) after.set_state(before.state());
    }
    CHECK(after.state() == straight.state());
  }
  for (const LossScaler::State& state :
       {LossScaler::State{0, 0, 0}, LossScaler::State{-1, 0, 0}, LossScaler::State{1e300, 0, 0},
        LossScaler::State{1, -1, 0}, LossScaler::State{1, 0, -1}}) {
    LossScaler scaler(kDynamic);
    require_error(ErrorKind::checkpoint, {"loss scale", "damaged"}, [&] { scaler.set_state(state); });
    CHECK(scaler.scale() == 0x1p32);
  }
  LossScaler raised({.constant = 0, .initial = 1024, .minimum = 64, .hysteresis = 1});
  raised.set_state({.scale = 8, .good_steps = 3, .hysteresis_left = 2});
  CHECK(raised.state() == LossScaler::State{64, 3, 1});
}
