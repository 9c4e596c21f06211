#include <string>

#include "base/core/error.h"
#include "base/core/timers.h"
#include "support/catch.h"

using namespace megatron;

namespace {

double test_time = 0;  // the clock that the timers under test read
double read_test_time() {
  return test_time;
}

}  // namespace

TEST_CASE("timers: a section pauses the enclosing one and all add up to the time") {
  test_time = 100;
  Timers timers(read_test_time);
  test_time += 1;  // other
  {
    const auto forward = timers.scope(Section::forward);
    test_time += 2;
    {
      const auto communication = timers.scope(Section::communication);
      test_time += 4;
      CHECK(timers.seconds(Section::communication) == 4);  // running sections count up to now
      CHECK(timers.seconds(Section::forward) == 2);
    }
    test_time += 8;
    {
      const auto nested = timers.scope(Section::forward);  // the same section inside itself is not counted twice
      test_time += 16;
    }
  }
  {
    const auto backward = timers.scope(Section::backward);
    test_time += 32;
  }
  test_time += 64;  // other
  CHECK(timers.seconds(Section::forward) == 2 + 8 + 16);
  CHECK(timers.seconds(Section::communication) == 4);
  CHECK(timers.seconds(Section::backward) == 32);
  CHECK(timers.seconds(Section::other) == 1 + 64);
  CHECK(timers.seconds(Section::saving) == 0);
  CHECK(timers.elapsed_seconds() == 127);
}

TEST_CASE("timers: an exception ends a section and reset keeps those entered") {
  test_time = 0;
  Timers timers(read_test_time);
  try {
    const auto saving = timers.scope(Section::saving);
    test_time += 1;
    fail(ErrorKind::filesystem, "disk full");
  } catch (const Error&) {
  }
  test_time += 2;
  CHECK(timers.seconds(Section::saving) == 1);
  CHECK(timers.seconds(Section::other) == 2);

  const auto data = timers.scope(Section::data);
  test_time += 4;
  timers.reset();
  test_time += 8;
  CHECK(timers.seconds(Section::data) == 8);
  CHECK(timers.elapsed_seconds() == 8);
}

TEST_CASE("too deep a nesting is refused and leaves the timers as they were") {
  test_time = 0;
  Timers timers(read_test_time);
  const auto nest = [&](auto&& self, int depth) -> void {
    if (depth == 0) return;
    const auto section = timers.scope(Section::forward);
    test_time += 1;
    self(self, depth - 1);
  };
  nest(nest, 15);
  CHECK_THROWS_AS(nest(nest, 16), Error);
  test_time += 5;
  CHECK(timers.seconds(Section::other) == 5);
}

TEST_CASE("the default clock runs forward and every section has its own name") {
  Timers timers;
  const double first = timers.elapsed_seconds();
  CHECK(first >= 0);
  CHECK(timers.elapsed_seconds() >= first);
  for (std::size_t i = 0; i < kSectionCount; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      CHECK(std::string(name_of(static_cast<Section>(i))) != name_of(static_cast<Section>(j)));
    }
  }
  CHECK(std::string(name_of(Section::other)) == "other");
}

TEST_CASE("timers: a listener hears of every section, communication included") {
  struct Listener final : Ranges {
    void begin(const char* name, std::int64_t number) override {
      text += name;
      text += number < 0 ? "(" : "!";
    }
    void end() override { text += ")"; }
    std::string text;
  } listener;
  Timers timers(read_test_time);
  timers.set_ranges(&listener);
  {
    const auto forward = timers.scope(Section::forward);
    const auto communication = timers.scope(Section::communication);
  }
  const auto optimizer = timers.scope(Section::optimizer);
  CHECK(listener.text == "forward(communication())optimizer(");
}
