// The prose of the manual pages: what no table of options says. A new program adds its row in manual_texts.cpp.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace megatron {

struct ManualExample {
  std::string_view what, command;
};

struct ManualText {
  std::string_view program, summary;
  std::vector<std::string_view> synopsis;     ///< without the program's name
  std::vector<std::string_view> description;  ///< paragraphs
  std::vector<ManualExample> examples;
  bool trains = false;  ///< saves and stops on signals, and writes a run's directory
};

std::span<const ManualText> manual_texts();
/// Error(internal) that says where to add the row, if there is none.
const ManualText& manual_text(std::string_view program);

struct ManualRow {
  std::string_view name, text;
};
std::span<const ManualRow> exit_codes();
std::span<const ManualRow> signals_of_training();
std::span<const ManualRow> files_of_a_run();
std::span<const ManualRow> environment_variables();

}  // namespace megatron
