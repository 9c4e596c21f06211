// Shared by the tests of src/config: a smallest complete input file, and the text of the error that something throws.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/core/error.h"
#include "config/parse/parse.h"
#include "config/rules/resolve.h"
#include "support/catch.h"

namespace megatron::test {

/// Message of the error that `action` throws, which must be a configuration error; "" when it throws nothing.
template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::configuration);
    CHECK(error.exit_code() == 2);
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline long lines(const std::string& text) {
  return text.empty() ? 0 : std::count(text.begin(), text.end(), '\n') + 1;
}

/// A complete, valid file: 12 layers, hidden 48, 12 heads, sequence 16, batch 8, 100 steps.
inline std::string small_file() {
  return "[model]\n"
         "layers = 12\n"
         "hidden_size = 48\n"
         "attention_heads = 12\n"
         "sequence_length = 16\n"
         "vocab_size = 100\n"
         "[train]\n"
         "steps = 100\n"
         "global_batch_size = 8\n"
         "[data]\n"
         "train = \"data/x\"\n";
}

inline Config parse_small(const std::vector<std::string>& overrides = {}) {
  return parse_config_text(small_file(), "small.toml", overrides);
}

/// Messages for a text, and for a setting of the small file.
inline std::string parse_error(const std::string& text) {
  return error_of([&] { parse_config_text(text, "f.toml"); });
}
inline std::string set_error(const std::string& option) {
  return error_of([&] { parse_small({option}); });
}

inline const DataFacts kData{100, 1000};

inline Config resolved(const std::vector<std::string>& overrides, int ranks = 1, const DataFacts* data = &kData) {
  Config config = parse_small(overrides);
  resolve(config, ranks, data);
  return config;
}

inline std::filesystem::path repository() {
  return MEGATRON_SOURCE;
}

}  // namespace megatron::test
