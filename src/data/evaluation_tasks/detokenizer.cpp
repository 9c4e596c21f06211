#include "data/evaluation_tasks/detokenizer.h"

#include "data/evaluation_tasks/example_text.h"

namespace megatron {

namespace {

void replace(std::string& text, std::string_view from, std::string_view to) {
  std::string result;
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(from, done)) != std::string::npos; done = at + from.size()) {
    result.append(text, done, at - done).append(to);
  }
  if (done > 0) text = result.append(text, done);
}

// Removes white space after each opening mark and before the closing mark that follows it.
void tighten(std::string& text, char open, char close) {
  std::string result;
  std::size_t done = 0;
  for (std::size_t begin; (begin = text.find(open, done)) != std::string::npos;) {
    const std::size_t end = text.find(close, begin + 1);
    if (end == std::string::npos) break;
    const std::string_view inside = std::string_view(text).substr(begin + 1, end - begin - 1);
    result.append(text, done, begin + 1 - done).append(without_trailing_space(without_leading_space(inside)));
    result.push_back(close);
    done = end + 1;
  }
  if (done > 0) text = result.append(text, done);
}

}  // namespace

std::string detokenized_wikitext(std::string_view text) {
  std::string result(text);
  replace(result, "s '", "s'");
  replace(result, " @-@ ", "-");
  replace(result, " @,@ ", ",");
  replace(result, " @.@ ", ".");
  for (const char mark : {':', ';', '.', '!', '?', ','}) {
    replace(result, std::string{' ', mark, ' '}, std::string{mark, ' '});
  }
  tighten(result, '(', ')');
  tighten(result, '[', ']');
  tighten(result, '{', '}');
  tighten(result, '"', '"');
  tighten(result, '\'', '\'');
  replace(result, "= = = =", "====");
  replace(result, "= = =", "===");
  replace(result, "= =", "==");
  replace(result, " \u00B0 ", "\u00B0");
  replace(result, " \n", "\n");
  replace(result, "\n ", "\n");
  replace(result, " N ", " 1 ");
  replace(result, " 's", "'s");
  return result;
}

}  // namespace megatron
