// Catch2, version 2 (Debian 12) or 3 (Debian 13, Ubuntu 24.04), by the same names: the only header that includes it.
// Tests use its macros, Approx, and the matchers below without a prefix. A main defines CATCH_CONFIG_RUNNER first, what
// listens to the tests CATCH_CONFIG_LISTENER.
#pragma once

#include <cstdio>
#include <string>

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>
#include <catch2/internal/catch_test_failure_exception.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#ifdef CATCH_CONFIG_RUNNER
#include <catch2/catch_session.hpp>
#endif
#ifdef CATCH_CONFIG_LISTENER
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using CatchListener = Catch::EventListenerBase;
#endif
using Catch::Approx;
inline auto Contains(const std::string& part) {
  return Catch::Matchers::ContainsSubstring(part);
}
#else
#ifdef CATCH_CONFIG_LISTENER
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#endif
#include <catch2/catch.hpp>
#ifdef CATCH_CONFIG_LISTENER
using CatchListener = Catch::TestEventListenerBase;
#endif
using Catch::Matchers::Contains;
#endif
#ifdef CATCH_CONFIG_LISTENER
using CatchTest = Catch::TestCaseInfo;
using CatchTestResult = Catch::TestCaseStats;
using CatchSection = Catch::SectionInfo;
#endif
using Catch::Matchers::EndsWith;
using Catch::Matchers::Equals;
using Catch::Matchers::StartsWith;

/// Ends the test case, which then counts as passed; scripts/test.sh lists what is printed here.
[[noreturn]] inline void skip_test(const char* reason) {
  const std::string name(Catch::getResultCapture().getCurrentTestName());
  std::printf("skipped: %s: %s\n", name.c_str(), reason);
  throw Catch::TestFailureException();
}
