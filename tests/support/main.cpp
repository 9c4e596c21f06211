#include "support/session.h"

int main(int argc, char** argv) {
  return megatron::test::run_tests(argc, argv);
}
