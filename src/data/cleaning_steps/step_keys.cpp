#include "data/cleaning_steps/step_keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/core/error.h"
#include "base/core/named_rows.h"
#include "base/system/regular_file.h"
#include "config/schema/suggestions.h"
#include "data/preprocess/input_identity.h"
#include "data/preprocess/text_corpus.h"

namespace megatron {

namespace {

template <class T>
bool reads_as(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

std::vector<std::string> words_of_list(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    if (end > at) words.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

/// Empty, or what the value should be.
const char* wrong_kind(KeyKind kind, const std::string& value) {
  std::uint64_t whole = 0;
  double number = 0;
  switch (kind) {
    case KeyKind::text:
    case KeyKind::file:
    case KeyKind::files: return "";
    case KeyKind::flag: return value == "true" || value == "false" ? "" : "true or false";
    case KeyKind::whole: return reads_as(value, whole) ? "" : "a whole number of 0 or more";
    case KeyKind::threshold:
      if (value == "on" || value == "off") return "";
      break;
    case KeyKind::number: break;
  }
  return reads_as(value, number) && std::isfinite(number) && number >= 0 ? ""
         : kind == KeyKind::threshold                                    ? "a number of 0 or more, on or off"
                                                                         : "a number of 0 or more";
}

/// A text that tells a key's value from others.
std::string identity_of_value(KeyKind kind, const std::string& value) {
  if (value.empty()) return value;
  if (kind == KeyKind::file) return fmt::format("{:016x}", hash_input(value));
  if (kind != KeyKind::files) return value;
  const TextCorpus files({.paths = words_of_list(value), .format = "jsonl"}, TextCorpus::Sizes::told_later);
  std::string hashes;
  for (std::size_t i = 0; i < files.files(); ++i) hashes += fmt::format("{:016x} ", hash_input(files.path(i)));
  return hashes;
}

}  // namespace

std::string option_name(std::string_view key) {
  std::string name(key);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

Compatibility compatibility_of(const std::string& word) {
  if (word == "none") return Compatibility::none;
  verify(word == "megatron", ErrorKind::configuration, "compat '{}': choose one of: none megatron", word);
  return Compatibility::megatron;
}

StepKeys::StepKeys(std::span<const KeyRow> rows, Compatibility compatibility) : rows_(rows) {
  for (const KeyRow& row : rows) {
    const bool theirs = compatibility == Compatibility::megatron && !row.megatron.empty();
    values_.emplace_back(theirs ? row.megatron : row.value);
  }
}

std::size_t StepKeys::index_of(std::string_view name) const {
  const KeyRow* const row = find_row(rows_, name);
  internal_check(row != nullptr, "a key that the step does not have", std::string(name));
  return static_cast<std::size_t>(row - rows_.data());
}

void StepKeys::set(std::string_view name, const std::string& value) {
  const KeyRow* const row = find_row(rows_, name);
  if (row == nullptr) {
    const std::string near = suggest_choice(name, names_of(rows_));
    fail(ErrorKind::configuration, "unknown key '{}'{}", name, near.empty() ? "" : "; did you mean '" + near + "'?");
  }
  const std::string_view expected = wrong_kind(row->kind, value);
  verify(expected.empty(), ErrorKind::configuration, "{}: '{}' should be {}", name, value, expected);
  values_[static_cast<std::size_t>(row - rows_.data())] = value;
}

const std::string& StepKeys::text(std::string_view name) const {
  return values_[index_of(name)];
}

std::uint64_t StepKeys::whole(std::string_view name) const {
  std::uint64_t value = 0;
  internal_check(reads_as(text(name), value), "a key without a whole number", std::string(name));
  return value;
}

double StepKeys::number(std::string_view name) const {
  double value = 0;
  internal_check(reads_as(text(name), value), "a key without a number", std::string(name));
  return value;
}

bool StepKeys::flag(std::string_view name) const {
  return text(name) == "true";
}

std::optional<double> StepKeys::threshold(std::string_view name, double usual) const {
  if (text(name) == "off") return std::nullopt;
  return text(name) == "on" ? usual : number(name);
}

std::vector<std::string> StepKeys::lines(std::string_view name, std::vector<std::string> otherwise) const {
  if (text(name).empty()) return otherwise;
  const RegularFile file(text(name), ErrorKind::data);
  std::string contents(file.bytes(), '\0');
  file.read(0, contents.data(), contents.size());
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < contents.size();) {
    const std::size_t end = std::min(contents.find('\n', at), contents.size());
    const std::size_t first = contents.find_first_not_of(" \t\r\n", at);
    if (first < end) {
      const std::size_t last = contents.find_last_not_of(" \t\r\n", end - 1);
      lines.push_back(contents.substr(first, last - first + 1));
    }
    at = end + 1;
  }
  return lines;
}

std::vector<std::string> StepKeys::list(std::string_view name) const {
  return words_of_list(text(name));
}

std::vector<std::pair<std::string, std::string>> StepKeys::all() const {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (std::size_t i = 0; i < rows_.size(); ++i) pairs.emplace_back(rows_[i].name, values_[i]);
  return pairs;
}

std::string StepKeys::identity() const {
  std::string identity;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    identity += fmt::format("{}={}\n", rows_[i].name, identity_of_value(rows_[i].kind, values_[i]));
  }
  return identity;
}

}  // namespace megatron
