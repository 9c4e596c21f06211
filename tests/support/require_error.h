// An Error that a test expects.
#pragma once

#include <string>
#include <vector>

#include "base/core/error.h"
#include "support/catch.h"

namespace megatron::test {

/// Runs `work`; it must throw an Error of `kind` whose message contains every one of `parts`.
template <class Work>
void require_error(ErrorKind kind, const std::vector<std::string>& parts, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    INFO("message: " << error.what());
    CHECK(error.kind() == kind);
    for (const std::string& part : parts) {
      INFO("missing: " << part);
      CHECK(std::string(error.what()).find(part) != std::string::npos);
    }
    return;
  }
  FAIL("no error was thrown");
}

}  // namespace megatron::test
