// Paths with the home directory and variables of the environment in place of their names.
#include "base/text/expand_path.h"

#include <cstdlib>

#include "support/catch.h"

using namespace megatron;

namespace {

std::string expanded(std::string path) {
  const std::string problem = expand_path(path);
  return problem.empty() ? path : "refused: " + problem;
}

bool refuses(const std::string& path, const std::string& part) {
  const std::string answer = expanded(path);
  INFO(answer);
  return answer.starts_with("refused: ") && answer.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("expand_path: the home directory and variables") {
  const std::string home = std::getenv("HOME");
  ::setenv("MEGATRON_TEST_A", "/a b", 1);
  ::setenv("MEGATRON_TEST_EMPTY", "", 1);
  CHECK(expanded("~") == home);
  CHECK(expanded("~/") == home + "/");
  CHECK(expanded("~/runs/a~b/~") == home + "/runs/a~b/~");
  CHECK(expanded("./~") == "./~");
  CHECK(expanded("$MEGATRON_TEST_A/x$MEGATRON_TEST_A-${MEGATRON_TEST_A}y") == "/a b/x/a b-/a by");
  CHECK(expanded("${MEGATRON_TEST_EMPTY}x$MEGATRON_TEST_EMPTY") == "x");
  for (const char* as_it_stands : {"", "/a/b", "$", "a$", "$5", "a$/b", "$$", "$(x)"}) {
    CHECK(expanded(as_it_stands) == as_it_stands);
  }
}

TEST_CASE("expand_path: what cannot be expanded is refused, and the path stays") {
  ::unsetenv("MEGATRON_TEST_UNSET");
  ::setenv("MEGATRON_TEST_A", "~/x", 1);
  ::setenv("MEGATRON_TEST_B", "$MEGATRON_TEST_A", 1);
  ::setenv("MEGATRON_TEST_C", "\xff", 1);
  CHECK(refuses("~someone/x", "~ stands for your own home directory alone"));
  CHECK(refuses("a/$MEGATRON_TEST_UNSET/b", "'MEGATRON_TEST_UNSET' is not set"));
  CHECK(refuses("${MEGATRON_TEST_UNSET}", "'MEGATRON_TEST_UNSET' is not set"));
  CHECK(refuses("${MEGATRON", "has a ${ without a }"));
  CHECK(refuses("${}", "'' is not set"));
  CHECK(refuses("$MEGATRON_TEST_A", "expands to another variable"));
  CHECK(refuses("x/$MEGATRON_TEST_B", "expands to another variable"));
  CHECK(refuses("$MEGATRON_TEST_C", "not valid UTF-8"));
  std::string path = "~/$MEGATRON_TEST_UNSET";
  expand_path(path);
  CHECK(path == "~/$MEGATRON_TEST_UNSET");
}
