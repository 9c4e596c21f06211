// The command lines of the programs: boost's values with our errors, which name the word that is wrong and what to type
// instead.
#pragma once

#include <boost/program_options.hpp>
#include <functional>
#include <string>

namespace megatron {

/// For a word that belongs to no option: what to type instead ("--prompt 'a'"), or nothing.
using WordAdvice = std::function<std::string(const std::string& word)>;

/// Command line to values; what is wrong with it is Error(configuration) that names the word, and the nearest known
/// option. In programs that have --set, keys that are given in another way are told the right one. --man and
/// --completion as the first word are answered here, and end the process (programs/guide.h).
boost::program_options::variables_map parse_command_line(
    int argc, char** argv, const boost::program_options::options_description& options,
    const boost::program_options::positional_options_description& positional, const WordAdvice& advice = nullptr);

}  // namespace megatron
