// The sub-commands of megatron_preprocess: each is done by one process, and prints a line about what it did.
#pragma once

#include <boost/program_options.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

inline constexpr const char* kTokenizerChoices = "byte|gpt2|bert-uncased|bert-cased|sentencepiece|unigram";
inline constexpr const char* kOverwriteHelp =
    "replace another set of shards that has this name (an equal one always may be)";

class PreprocessTool {
 public:
  virtual ~PreprocessTool() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view arguments() const = 0;  ///< as usage shows them
  virtual std::string_view about() const = 0;

  /// argv[0] is the tool's name. ErrorKind::configuration for what cannot be done.
  void parse(int argc, char** argv);
  /// Returns what to tell the user.
  virtual std::string run() = 0;
  std::string help() const;

 protected:
  PreprocessTool() : options_("Options") { options_.add_options()("help", "this text"); }
  template <class T>
  void option(const char* option_name, T* value, const char* value_name, const char* text) {
    options_.add_options()(option_name, boost::program_options::value(value)->value_name(value_name), text);
  }
  void list(const char* option_name, std::vector<std::string>* values, const char* value_name, const char* text) {
    options_.add_options()(option_name, boost::program_options::value(values)->multitoken()->value_name(value_name),
                           text);
  }
  void flag(const char* option_name, bool* value, const char* text) {
    options_.add_options()(option_name, boost::program_options::bool_switch(value), text);
  }
  /// Checks names_ and the options, once they are known.
  virtual void check() const = 0;
  [[noreturn]] void wrong_usage() const;

  std::vector<std::string> names_;  // arguments without an option

 private:
  boost::program_options::options_description options_;
};

/// nullptr if there is none of this name.
std::unique_ptr<PreprocessTool> find_preprocess_tool(std::string_view name);
/// The name of the tool that a misspelt word is nearest to; empty if none is near.
std::string suggest_preprocess_tool(const std::string& word);
/// For --help: a line about each.
std::string list_preprocess_tools();

}  // namespace megatron
