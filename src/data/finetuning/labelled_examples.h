// Labelled examples for fine-tuning: texts, pairs of texts and questions with choices, out of the files of GLUE and
// RACE and of JSON lines. Knows text alone: no tokens, no models. Nothing in a file is trusted: what is wrong is an
// Error(data) with the file and the line.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// A text, or a pair of them. Views, valid while the example is taken.
struct TextPair {
  std::string_view a;
  std::optional<std::string_view> b;
};

/// A classification has one text or pair, a question one pair for each choice.
struct LabelledExample {
  std::vector<TextPair> texts;
  std::int32_t label = -1;  ///< number of the right label, or of the right choice; -1: the file does not say
};

struct ExampleForm {
  std::string format = "json";      ///< as task.format
  std::vector<std::string> labels;  ///< a classification's, by their number; empty: a multiple choice
  std::int64_t choices = 0;         ///< in a multiple choice: as every question has
  bool may_lack_labels = false;     ///< an absent, null or empty label is none; else it is refused
};

/// A file's contents, and its name for messages.
struct ExampleFile {
  std::string path;
  std::string_view text;
};

using TakeExample = std::function<void(const LabelledExample& example)>;

/// Calls `take` with the examples in their order: at least one, or Error(data).
///   json: lines {text_a, text_b, label}, where text_b may be absent. The label is a name, or its number in `labels`
///         where these are no numbers themselves;
///         of questions {context, choices, answer}, the answer counted from 0. Each choice makes the pair context,
///         choice.
///   tsv: tab-separated columns under a line of titles, of which the first pair of text columns that are all there is
///         read: text_a and text_b, sentence1 and sentence2 and other names of published files, or one text: sentence,
///         text_a, text. The label's column is label, gold_label, is_duplicate or Quality.
///   mnli, qqp: tab-separated columns under a line of titles; white space around a text or label is none of it. Test
///         files have no labels.
///   race: lines {article, questions, options, answers}, the answers "A", "B" and so on. Each option makes the pair
///         question with option, article.
void read_labelled_examples(const ExampleFile& file, const ExampleForm& form, const TakeExample& take);

/// White space in a row as one space, none before a full stop that stands alone: as Megatron's tasks clean text of the
/// three published formats.
std::string clean_text(std::string_view text);

}  // namespace megatron
