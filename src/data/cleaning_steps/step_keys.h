// The keys of a step as rows of a table, and their values as texts, as a command line and a recipe give them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

/// text: any; whole: 0 or more; number: 0 or more, with a fraction; flag: true or false; file: a file's name, or none,
/// whose contents are a part of what the step does; files: the same of several, with commas, and folders; threshold: a
/// number, "off", or "on" for the usual number.
enum class KeyKind { text, whole, number, flag, file, files, threshold };

struct KeyRow {
  std::string_view name;  ///< "min_characters"; the option is --min-characters
  KeyKind kind;
  std::string_view value;  ///< the default, as text; empty: none
  std::string_view shown;  ///< the value in --help: "N", "FILE"
  std::string_view help;
  std::string_view megatron = {};  ///< the default with --compat megatron, where it is another
};

enum class Compatibility { none, megatron };
/// Reads "none" or "megatron"; ErrorKind::configuration for another word.
Compatibility compatibility_of(const std::string& word);

/// The values of one step's keys: the defaults, until they are set.
class StepKeys {
 public:
  explicit StepKeys(std::span<const KeyRow> rows, Compatibility compatibility = Compatibility::none);

  /// ErrorKind::configuration for a key that there is none of (naming a near one), and a value that is not of its kind.
  void set(std::string_view name, const std::string& value);

  // Values of a key that the table has, of the kind that it is. A file's is its name.
  const std::string& text(std::string_view name) const;
  std::uint64_t whole(std::string_view name) const;
  double number(std::string_view name) const;
  bool flag(std::string_view name) const;
  /// Nothing if it is off, `usual` if it is on.
  std::optional<double> threshold(std::string_view name, double usual) const;
  /// The lines of a file that are not blank, without the spaces around them; `otherwise` if none was given.
  std::vector<std::string> lines(std::string_view name, std::vector<std::string> otherwise) const;

  /// The names in a list with commas; none for an empty one.
  std::vector<std::string> list(std::string_view name) const;

  /// Names and values, in the order of the table.
  std::vector<std::pair<std::string, std::string>> all() const;
  /// The same with the contents' hashes of files instead of their names. ErrorKind::data for a file that is missing.
  std::string identity() const;

 private:
  std::size_t index_of(std::string_view name) const;

  std::span<const KeyRow> rows_;
  std::vector<std::string> values_;
};

/// "min_characters" as the option "min-characters".
std::string option_name(std::string_view key);

}  // namespace megatron
