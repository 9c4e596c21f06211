// The command lines of the programs: boost's values with our errors, which name the word that is wrong and what to type
// instead, and the list of options of --help.
#pragma once

#include <boost/program_options.hpp>
#include <functional>
#include <string>

namespace megatron {

/// Columns of a line of --help, and of descriptions at least: boost breaks names that are longer than half of a line.
inline constexpr unsigned kHelpColumns = 100, kDescriptionColumns = 60;

/// For a word that belongs to no option: what to type instead ("--prompt 'a'"), or nothing.
using WordAdvice = std::function<std::string(const std::string& word)>;

/// Command line to values; what is wrong with it is Error(configuration) that names the word, and the nearest known
/// option. In programs that have --set, keys that are given in another way are told the right one. In the names
/// of files and folders, ~ and $NAME are replaced.
boost::program_options::variables_map parse_command_line(
    int argc, char** argv, const boost::program_options::options_description& options,
    const boost::program_options::positional_options_description& positional, const WordAdvice& advice = nullptr);

/// The options as --help lists them, with two spaces or more in front of each description: help2man tells by them where
/// it begins.
std::string list_options(const boost::program_options::options_description& options);

}  // namespace megatron
