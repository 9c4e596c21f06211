// The steps of megatron_clean as rows of a table, and what a step says about one document. StepPlayer
// (play_step.cpp) reads the corpus, keeps the order and writes the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/cleaning/text_form.h"
#include "data/cleaning_steps/document.h"
#include "data/cleaning_steps/findings.h"
#include "data/cleaning_steps/step_keys.h"

namespace megatron {

class Communicator;
class TextCorpus;

/// Hears of the rules that a document meets.
class RuleListener {
 public:
  virtual ~RuleListener() = default;
  /// `shown`: the example for the report, instead of the document's beginning.
  virtual void met(std::size_t rule, std::string_view shown) = 0;
  void met(std::size_t rule) { met(rule, {}); }
};

/// An extra pass over the input, for what a step has to know about all documents before it changes the first one.
/// In each round every rank looks at the documents of one block, or of none.
class FirstPass {
 public:
  virtual ~FirstPass() = default;

  virtual void look(const Document& document) = 0;
  /// Collective, and so are its errors.
  virtual void end_round() {}
  /// After the last round: tells the step what was found. Collective, and so are its errors.
  virtual void finish() = 0;
};

/// One rank's part of a step. Not thread-safe; a pure function of the document, so that ranks need not agree.
class Step {
 public:
  virtual ~Step() = default;

  /// Members that the step reads, required ones first: the numbers of Document are their places here.
  virtual std::vector<MemberName> members() const = 0;
  /// Its rules, whose numbers are their places here; a duplicate is met by the last one.
  virtual std::vector<Rule> rules() const = 0;
  /// The files that documents go to, without extension.
  virtual std::vector<std::string> outputs() const { return {"documents"}; }

  /// The inputs, before the first document; for what the step has to know of their beginnings.
  virtual void see_inputs(TextCorpus& corpus) { static_cast<void>(corpus); }
  /// The JSON line that stands for a page of a dump, valid until the next one; throws BadDocument. Only of steps that
  /// read dumps; apply() follows.
  virtual std::string_view json_of_page(std::size_t file, std::string_view page) {
    static_cast<void>(file);
    return page;
  }

  /// The pass that the step needs before apply(); nullptr if it needs none, on all ranks alike. Scratch files are made
  /// in the folder `scratch`, which need not be there yet. The pass ends before the step. Does not communicate.
  virtual std::unique_ptr<FirstPass> first_pass(Communicator& world, const std::string& scratch) {
    static_cast<void>(world), static_cast<void>(scratch);
    return nullptr;
  }
  /// A block begins: the same ones with the same documents, in the same order, as in the first pass.
  virtual void begin_block() {}

  /// Changes a document and tells `listener` of each rule that did; false: a rule (the last one told) removes it.
  virtual bool apply(Document& document, RuleListener& listener) = 0;
  /// The documents that apply() has made of the one, each the same but for what take_part() replaces.
  virtual std::size_t parts() const { return 1; }
  virtual void take_part(Document& document, std::size_t part) { static_cast<void>(document), static_cast<void>(part); }
  /// An object that the report has besides counts, on rank 0.
  virtual nlohmann::ordered_json facts() const { return nlohmann::ordered_json::object(); }

  /// A text of which one document stays: the first one in the order of the input.
  virtual std::optional<TextHash> identity(const Document&) const { return std::nullopt; }

  /// Whether prepare() has to be called with the number of all documents before the first.
  virtual bool needs_count() const { return false; }
  virtual void prepare(std::uint64_t) {}
  /// A number that decides what place() does with a document, if not its own.
  virtual std::optional<std::uint64_t> place_by(const Document&) const { return std::nullopt; }
  /// The output that a document goes to; nothing: it is not kept, as the first rule says. `number`: of the documents
  /// that apply() has kept, duplicates among them, it is this one, from 0.
  virtual std::optional<std::size_t> place(std::uint64_t number, std::optional<std::uint64_t> by) const {
    static_cast<void>(number), static_cast<void>(by);
    return 0;
  }
  /// Where it comes in the output, instead of the order of the input: by ascending keys, those that are equal by
  /// number.
  virtual bool reorders() const { return false; }
  virtual std::uint64_t order_key(std::uint64_t number) const { return number; }
};

/// Inputs of a step: JSON lines, also lists (plain text with one entry a line), or dumps of MediaWiki instead.
enum class InputKind { documents, documents_and_lists, wiki_dumps };

/// Names of members that all steps have.
struct StepSettings {
  std::string text_key = "text";
  bool list = false;  ///< the inputs are lists
};

struct StepRow {
  std::string_view name, about;
  std::span<const KeyRow> keys;
  InputKind inputs;
  /// ErrorKind::configuration for values that cannot be.
  std::unique_ptr<Step> (*make)(const StepKeys& keys, const StepSettings& settings);
  // Functions that some steps have; errors as make().
  /// Bytes of each rank besides those of all steps. `longest`: bytes of a line.
  std::uint64_t (*memory)(const StepKeys& keys, std::uint64_t longest) = nullptr;
  std::string (*note)(const StepKeys& keys) = nullptr;  ///< text for the user before the step begins
};

std::span<const StepRow> step_table();
/// nullptr if there is none of this name.
const StepRow* find_step(std::string_view name);

// The rows.
StepRow urls_step();
StepRow text_step();
StepRow duplicates_step();
StepRow decontaminate_step();
StepRow sample_step();
StepRow split_step();
StepRow shuffle_step();
StepRow merge_step();
StepRow wikipedia_step();

}  // namespace megatron
