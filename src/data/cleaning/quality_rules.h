// Rules by which documents are dropped: those of Gopher (Rae et al. 2021, appendix A.1.1) for quality and repetition,
// and those of Megatron-LM's OpenWebText tools. Each is a row with a default threshold. A document is read once, and
// all rules are asked about what was measured. Time is linear in the document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace megatron {

/// Facts of one document. Words are parted by white space. Characters are code points.
struct DocumentMeasures {
  std::size_t characters = 0, words = 0, word_characters = 0;
  std::size_t letter_words = 0;    ///< with at least one letter
  std::size_t stop_words = 0;      ///< different ones of Gopher's eight, in any case, punctuation around them ignored
  std::size_t hashes = 0;          ///< '#'
  std::size_t ellipses = 0;        ///< "..." and U+2026
  std::size_t lines = 0;           ///< that are not blank
  std::size_t bullet_lines = 0;    ///< that begin with a bullet, '-' or '*'
  std::size_t ellipsis_lines = 0;  ///< that end with an ellipsis
  std::size_t paragraphs = 0;      ///< lines between blank lines
  std::size_t duplicate_lines = 0, duplicate_line_characters = 0;  ///< that were there before
  std::size_t duplicate_paragraphs = 0, duplicate_paragraph_characters = 0;
  std::size_t top_characters[3] = {};        ///< in the most frequent 2-, 3- and 4-gram of words, all its occurrences
  std::size_t duplicate_characters[6] = {};  ///< in 5- to 10-grams of words that were there before, none counted twice
  bool javascript = false;                   ///< the word occurs, in any case
  std::string_view language;                 ///< the caller's guess; empty: none was made
  std::function<std::size_t()> tokens;       ///< counts the tokens of the document; empty: no tokenizer
};

/// Measures documents one after another, in memory that it keeps. `work` grows linearly with their length.
class DocumentMeter {
 public:
  /// The result has neither language nor tokens: the caller may add them.
  DocumentMeasures measure(std::string_view text);
  /// Words, lines and n-grams looked at so far.
  std::uint64_t work() const { return work_; }

 private:
  struct Word {
    std::uint64_t hash;
    std::size_t characters;
  };
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t count = 0, stamp = 0;
  };
  void read_words(std::string_view text, DocumentMeasures& measures);
  void read_lines(std::string_view text, DocumentMeasures& measures);
  void count_top(std::size_t n, std::size_t& characters);
  void count_duplicates(std::size_t n, std::size_t& characters);
  void start_table(std::size_t entries);
  std::uint32_t add(std::uint64_t hash);

  std::vector<Word> words_;
  std::vector<Slot> table_;
  std::uint32_t stamp_ = 0;
  std::uint64_t work_ = 0;
};

enum class RuleGroup : std::uint8_t { quality, repetition, megatron };

struct QualityRule {
  std::string_view name;
  RuleGroup group;
  bool least;        ///< the threshold is the least value that is kept, else the most
  double threshold;  ///< default
  bool on;           ///< default
  std::string_view help;
  /// Nothing if the rule does not apply to the document. Some depend on the threshold.
  std::optional<double> (*value)(const DocumentMeasures& measures, double threshold);
};
std::span<const QualityRule> quality_rules();

struct Violation {
  const QualityRule* rule = nullptr;
  double value = 0;
};
/// The first rule, in the order of the rows, that drops the document; nothing if all keep it. `thresholds` has one
/// entry for each row: its threshold, or nothing if it is off.
std::optional<Violation> first_violation(const DocumentMeasures& measures,
                                         std::span<const std::optional<double>> thresholds);
/// Thresholds of the rows that are on by default.
std::vector<std::optional<double>> default_thresholds();

}  // namespace megatron
