#include "base/core/dtype.h"
#include "base/core/error.h"
#include "support/catch.h"

using namespace megatron;

namespace {

/// The Error that `body` throws; fails the test if it throws none.
template <class Body>
Error error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  FAIL("nothing was thrown");
  return {ErrorKind::internal, ""};
}

}  // namespace

TEST_CASE("verify: throws its kind and message only if the condition fails") {
  CHECK_NOTHROW(verify(true, ErrorKind::data, "unused {}", 1));
  const Error error = error_of([] { verify(false, ErrorKind::data, "{} has {} tokens", "shard", 7); });
  CHECK(error.kind() == ErrorKind::data);
  CHECK(std::string(error.what()) == "shard has 7 tokens");
}

TEST_CASE("every kind of error has its exit code and word") {
  const std::pair<ErrorKind, std::pair<int, const char*>> table[] = {
      {ErrorKind::internal, {1, "internal"}},
      {ErrorKind::configuration, {2, "configuration"}},
      {ErrorKind::data, {3, "data"}},
      {ErrorKind::checkpoint, {4, "checkpoint"}},
      {ErrorKind::numerics, {5, "numerics"}},
      {ErrorKind::communication, {6, "communication"}},
      {ErrorKind::filesystem, {7, "filesystem"}},
  };
  for (const auto& [kind, expected] : table) {
    CHECK(Error(kind, "").exit_code() == expected.first);
    CHECK(std::string(name_of(kind)) == expected.second);
  }
  CHECK(kExitStoppedEarly == 75);
}

TEST_CASE("a broken internal promise names its place") {
  CHECK_NOTHROW(internal_check(true, "fine"));
  const Error error = error_of([] { internal_check(false, "slot used twice"); });
  CHECK(error.kind() == ErrorKind::internal);
  CHECK_THAT(error.what(), Contains("slot used twice") && Contains("test_error.cpp"));
}

TEST_CASE("internal check: a broken promise shows the values compared") {
  const std::size_t colours = 3;
  const Error error = error_of([&] { internal_check(colours == 4, "a colour for every rank", colours, -4, 0.5); });
  CHECK(error.kind() == ErrorKind::internal);
  CHECK_THAT(error.what(), Contains("a colour for every rank: 3, -4, 0.5 (") && Contains("test_error.cpp"));
  CHECK_THAT(error_of([] { internal_check(false, "of one type", DType::bf16, DType::f32); }).what(),
             Contains("of one type: bf16, f32 ("));
  CHECK_THAT(error_of([] {
               internal_check(false, {"elsewhere", {"file.h", "f", 7}}, 1);
             }).what(),
             Contains("elsewhere: 1 (file.h:7, f)"));
}

TEST_CASE("internal check: a promise that holds formats nothing") {
  struct Counted {
    int* formatted;
    std::string to_string() const {
      ++*formatted;
      return "counted";
    }
  };
  int formatted = 0;
  internal_check(true, "fine", Counted{&formatted});
  CHECK(formatted == 0);
  CHECK_THAT(error_of([&] { internal_check(false, "broken", Counted{&formatted}); }).what(),
             Contains("broken: counted ("));
  CHECK(formatted == 1);
}

TEST_CASE("exact division refuses remainders and names the division") {
  CHECK(exact_division(12, 4, "heads per rank") == 3);
  CHECK(exact_division(0, 4, "heads per rank") == 0);
  CHECK_THAT(error_of([] { (void)exact_division(13, 4, "heads per rank"); }).what(),
             Contains("heads per rank") && Contains("13") && Contains("4"));
  CHECK_THROWS_AS(exact_division(13, 0, "heads per rank"), Error);
}

TEST_CASE("element types have sizes and names") {
  CHECK(size_of(DType::f64) == 8);
  CHECK(size_of(DType::f32) == 4);
  CHECK(size_of(DType::i32) == 4);
  CHECK(size_of(DType::bf16) == 2);
  CHECK(size_of(DType::f16) == 2);
  CHECK(size_of(DType::u8) == 1);
  CHECK(std::string(name_of(DType::bf16)) == "bf16");
}
