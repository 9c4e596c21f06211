// For test programs with a main of their own: Catch2's session, whose parts take half a minute to compile, once for
// all.
#pragma once

namespace megatron::test {

/// Runs the tests that the arguments choose, and returns the number of those that failed, or another number that is not
/// 0 after an error.
int run_tests(int argc, char** argv);

}  // namespace megatron::test
