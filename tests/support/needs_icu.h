// Tests that split sentences by ICU's rules, which a build may lack.
#pragma once

#include "support/catch.h"

/// Skips the test case in a build without ICU.
inline void needs_icu() {
#ifndef MEGATRON_ICU
  skip_test("this build has no ICU");
#endif
}
