#include "programs/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <limits>
#include <sstream>
#include <vector>

#include "base/core/error.h"
#include "base/text/expand_path.h"
#include "config/schema/megatron_flags.h"
#include "config/schema/suggestions.h"

namespace megatron {

namespace po = boost::program_options;

namespace {

constexpr const char* kSurplus = "words without an option";
constexpr const char* kPathNames[] = {"INPUT.toml", "FILE", "FOLDER", "DIRECTORY", "RUN", "PREFIX", "SOURCE", "TARGET"};

/// "train.steps=3" or "lr=3": a key with its value, and no file that happens to be called so.
bool assigns_key(const std::string& word) {
  const auto equals = word.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  const auto belongs = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; };
  std::error_code ignored;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), belongs) &&
         !std::filesystem::exists(word, ignored);
}

/// --set train.steps 3; train.steps=3; --train.steps=3; --train.steps 3.
void check_keys(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const std::string next = i + 1 < words.size() ? words[i + 1] : "";
    if (word == "--set") {
      const std::string after = i + 2 < words.size() ? words[i + 2] : "";
      verify(next.find('=') != std::string::npos || after.empty() || after.starts_with("--") ||
                 next.find('.') == std::string::npos,
             ErrorKind::configuration, "--set {0} {1}: key and value are one word; type --set {0}={1}", next, after);
      ++i;  // its value
      continue;
    }
    if (assigns_key(word)) {
      fail(ErrorKind::configuration, "'{0}': a key of the input file is set with --set; type --set {0}", word);
    }
    if (!word.starts_with("--")) continue;
    const std::string name = word.substr(2);
    if (name.substr(0, name.find('=')).find('.') == std::string::npos) continue;
    fail(ErrorKind::configuration, "unknown option {}; a key of the input file is set with --set; type --set {}", word,
         name.find('=') != std::string::npos ? name : fmt::format("{}={}", name, next.empty() ? "VALUE" : next));
  }
}

/// Flags of Megatron-LM, as they were typed ("--lr", "--lr=1e-4"), are answered with what does the same here, all at
/// once: a command that has one usually has many. `unknown`: the first option that is none of ours.
void refuse_megatron_flags(const po::options_description& options, const std::string& unknown,
                           const std::vector<std::string>& words) {
  std::vector<std::string> answers;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const MegatronFlag* flag = find_megatron_flag(name);
    if (flag == nullptr || options.find_nothrow(name.substr(2), false) != nullptr) continue;
    std::string value = equals == std::string::npos ? "" : words[i].substr(equals + 1);
    if (value.empty() && i + 1 < words.size() && !words[i + 1].starts_with("-")) value = words[i + 1];
    answers.push_back(fmt::format("unknown option {} of Megatron-LM: {}", name, megatron_advice(*flag, value)));
  }
  if (answers.empty()) return;
  if (find_megatron_flag(unknown) == nullptr) answers.push_back("unknown option " + unknown);
  answers.emplace_back("docs/from_megatron.md lists all flags of Megatron-LM");
  fail(ErrorKind::configuration, "{}", fmt::join(answers, "\n"));
}

/// Whether an option takes the name of a file or folder, by the name that --help gives its value.
bool takes_path(const po::option_description& option) {
  const std::string value = option.format_parameter();
  return std::any_of(std::begin(kPathNames), std::end(kPathNames),
                     [&](const char* name) { return value.find(name) != std::string::npos; });
}

/// The names of files and folders that were typed: a shell leaves --output=~/a and what is quoted as it stands.
void expand_paths(const po::options_description& options, po::variables_map& values) {
  const auto replace = [](std::string& path) {
    const std::string typed = path, problem = expand_path(path);
    verify(problem.empty(), ErrorKind::configuration, "'{}': {}", typed, problem);
  };
  for (const auto& option : options.options()) {
    const auto found = values.find(option->long_name());
    if (found == values.end() || found->second.defaulted() || !takes_path(*option)) continue;
    boost::any& value = found->second.value();
    if (auto* const path = boost::any_cast<std::string>(&value)) replace(*path);
    if (auto* const paths = boost::any_cast<std::vector<std::string>>(&value)) {
      std::for_each(paths->begin(), paths->end(), replace);
    }
  }
}

}  // namespace

po::variables_map parse_command_line(int argc, char** argv, const po::options_description& options,
                                     const po::positional_options_description& positional, const WordAdvice& advice) {
  if (options.find_nothrow("set", false) != nullptr) check_keys({argv + 1, argv + argc});
  po::options_description all;
  all.add(options).add_options()(kSurplus, po::value<std::vector<std::string>>());
  po::positional_options_description places = positional;
  if (places.max_total_count() != std::numeric_limits<unsigned>::max()) places.add(kSurplus, -1);
  po::variables_map values;
  try {
    po::store(po::command_line_parser(argc, argv)
                  .options(all)
                  .positional(places)
                  .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing)
                  .run(),
              values);
    expand_paths(options, values);
    po::notify(values);
  } catch (const po::unknown_option& error) {
    refuse_megatron_flags(options, error.get_option_name(), {argv + 1, argv + argc});
    std::vector<std::string> names;
    for (const auto& option : options.options()) names.push_back("--" + option->long_name());
    const std::string nearest = suggest_choice(error.get_option_name(), names);
    fail(ErrorKind::configuration, "unknown option {}{}; --help lists all", error.get_option_name(),
         nearest.empty() ? "" : ", did you mean " + nearest + "?");
  } catch (const po::error& error) {
    fail(ErrorKind::configuration, "{}; --help lists all options", error.what());
  }
  if (values.count(kSurplus) > 0) {
    const std::string& word = values[kSurplus].as<std::vector<std::string>>().front();
    const std::string instead = advice ? advice(word) : "";
    fail(ErrorKind::configuration, "'{}' belongs to no option{}; --help lists all options", word,
         instead.empty() ? "" : "; " + instead);
  }
  return values;
}

std::string list_options(const po::options_description& options) {
  std::ostringstream text;
  options.print(text, options.get_option_column_width() + 1);
  return text.str();
}

}  // namespace megatron
