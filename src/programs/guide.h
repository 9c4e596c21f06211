// Descriptions of a program's command line for shells and manuals: `PROGRAM --man` and `PROGRAM --completion SHELL`.
// Made of the options that the program parses and of the schema of input files, so that they agree with these.
#pragma once

#include <boost/program_options.hpp>
#include <string>
#include <vector>

#include "config/schema.h"

namespace megatron {

struct GuideOption {
  std::string name, letter;  ///< "help" and "h"; no letter: ""
  std::string value;         ///< "FILE", or choices: "cpu|cuda"; of a switch: ""
  std::string fallback;      ///< the value where none is given, as text
  std::string help;
};

struct GuideCommand {
  std::string name, arguments, about;
  std::vector<GuideOption> options;
};

struct Guide {
  std::string program;
  std::vector<GuideOption> options, operands;  ///< operands: options that are given without their name, in order
  std::vector<GuideCommand> commands;
};

std::vector<GuideOption> guide_options(const boost::program_options::options_description& options);
Guide make_guide(const std::string& program, const boost::program_options::options_description& options,
                 const boost::program_options::positional_options_description& operands,
                 std::vector<GuideCommand> commands = {});

/// The kind of a value, by its name in the options' table.
enum class ValueKind { other, choice, key, input_file, file, folder };
ValueKind value_kind(const std::string& value);
/// "cpu|cuda": cpu, cuda.
std::vector<std::string> choices_in(const std::string& value);
/// The values of a key that are words: choices, true and false, names of presets.
std::vector<std::string> words_of(const Key& key);
ValueKind value_kind(const Key& key);

/// Where the first word is --man, --man=input or --completion SHELL: prints the answer, on rank 0, and ends the
/// process.
void answer_guide(const Guide& guide, int argc, char** argv);

std::string bash_completion(const Guide& guide);
std::string zsh_completion(const Guide& guide);
/// The page of section 1; its prose is in manual_texts.cpp.
std::string manual_page(const Guide& guide);
/// megatron_input(5): every key of input files.
std::string input_manual_page();

}  // namespace megatron
