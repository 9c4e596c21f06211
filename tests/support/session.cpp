#define CATCH_CONFIG_RUNNER
#include "support/session.h"

#include "support/catch.h"

int megatron::test::run_tests(int argc, char** argv) {
  return Catch::Session().run(argc, argv);
}
