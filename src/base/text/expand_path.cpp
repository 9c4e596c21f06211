#include "base/text/expand_path.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "base/text/utf8.h"

namespace megatron {

namespace {

bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool continues_name(char c) {
  return begins_name(c) || (c >= '0' && c <= '9');
}

/// Where the next `$NAME` or `${` begins.
std::size_t find_variable(std::string_view text, std::size_t from) {
  for (std::size_t at = text.find('$', from); at != std::string_view::npos; at = text.find('$', at + 1)) {
    const std::string_view next = text.substr(at + 1, 1);
    if (!next.empty() && (next[0] == '{' || begins_name(next[0]))) return at;
  }
  return std::string_view::npos;
}

}  // namespace

std::string expand_path(std::string& path) {
  const std::string_view text = path;
  std::string result;
  std::string problem;
  const auto add = [&](const std::string& variable) {
    const char* const value = std::getenv(variable.c_str());
    if (value != nullptr) return void(result += value);
    problem = fmt::format("the environment variable '{}' is not set", variable);
  };
  std::size_t at = 0;
  if (text.starts_with('~')) {
    if (text != "~" && !text.starts_with("~/")) {
      return "~ stands for your own home directory alone, ~/; write the whole path, or ./~ for a file of that name";
    }
    add("HOME");
    at = 1;
  }
  for (std::size_t begin; problem.empty() && (begin = find_variable(text, at)) != std::string_view::npos;) {
    result.append(text, at, begin - at);
    const bool braces = text[begin + 1] == '{';
    const std::size_t first = begin + (braces ? 2 : 1);
    std::size_t last = first;
    while (last < text.size() && (braces ? text[last] != '}' : continues_name(text[last]))) ++last;
    if (braces && last == text.size()) return fmt::format("'{}' has a ${{ without a }}", path);
    add(std::string(text.substr(first, last - first)));
    at = last + (braces ? 1 : 0);
  }
  if (!problem.empty()) return problem;
  result.append(text, at);
  if (find_variable(result, 0) != std::string::npos || result.starts_with('~')) {
    return fmt::format("'{}' expands to another variable: '{}'", path, result);
  }
  if (first_invalid_utf8(result) < result.size()) return "its expansion is not valid UTF-8";
  path = std::move(result);
  return "";
}

}  // namespace megatron
