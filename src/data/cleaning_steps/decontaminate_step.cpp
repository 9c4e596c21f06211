// decontaminate: what evaluation tasks have is cut out of documents, or the documents are dropped.
#include <algorithm>

#include "base/core/error.h"
#include "data/cleaning/decontamination.h"
#include "data/cleaning_steps/step.h"
#include "data/cleaning_steps/task_texts.h"
#include "distributed/comm/communicator.h"

namespace megatron {

namespace {

constexpr KeyRow kDecontaminateKeys[] = {
    {"tasks", KeyKind::files, "", "FILE,...",
     "JSON lines of the tasks, as LAMBADA's, questions and RACE's, or folders"},
    {"fields", KeyKind::text, "text,article,context,ctx,question,questions,stem,query,goal,prompt", "NAME,...",
     "the members, at any depth, whose strings are texts of the tasks"},
    {"action", KeyKind::text, "cut", "cut|drop", "cut n-grams of a task out of the text, or drop the document"},
    {"longest_ngram", KeyKind::whole, "13", "N", "words of an n-gram"},
    {"shortest_ngram", KeyKind::whole, "8", "N",
     "a task's text of fewer words than an n-gram is one itself, with this many"},
    {"common", KeyKind::whole, "10", "N", "n-grams in this number of documents and more are common phrases, and stay"},
    {"context", KeyKind::whole, "200", "N",
     "characters around an n-gram that are cut with it, to the ends of sentences"},
    {"least_part", KeyKind::whole, "200", "N", "parts of this many characters and fewer are dropped"},
    {"most_parts", KeyKind::whole, "10", "N", "a document of which more parts are left is dropped"},
    {"search", KeyKind::text, "full", "full|megatron", "megatron: as Megatron-LM's, which misses some", "megatron"},
};

NgramRule ngrams_of(const StepKeys& keys) {
  const std::string& search = keys.text("search");
  verify(search == "full" || search == "megatron", ErrorKind::configuration,
         "search '{}': choose one of: full megatron", search);
  verify(keys.whole("common") > 0, ErrorKind::configuration, "common 0: then all n-grams are; 1 at least");
  return {.shortest = keys.whole("shortest_ngram"),
          .longest = keys.whole("longest_ngram"),
          .common = keys.whole("common"),
          .compat = search == "megatron"};
}

/// Counts the documents of each n-gram, on all ranks.
class CountPass final : public FirstPass {
 public:
  CountPass(Communicator& world, NgramIndex& index, std::uint64_t& common)
      : world_(world), index_(index), common_(common) {}

  void look(const Document& document) override { index_.count(document.value(0)); }
  void finish() override {
    constexpr std::size_t kOnce = 65536;
    const std::span<std::uint64_t> counts = index_.counts();
    for (std::size_t first = 0; first < counts.size(); first += kOnce) {
      const std::span<std::uint64_t> some = counts.subspan(first, std::min(kOnce, counts.size() - first));
      std::vector<double> sums(some.begin(), some.end());
      world_.all_reduce_values(sums, kReport);
      std::transform(sums.begin(), sums.end(), some.begin(),
                     [](double sum) { return static_cast<std::uint64_t>(sum); });
    }
    common_ = index_.keep_rare();
  }

 private:
  Communicator& world_;
  NgramIndex& index_;
  std::uint64_t& common_;
};

class DecontaminateStep final : public Step {
 public:
  DecontaminateStep(const StepKeys& keys, const StepSettings& settings)
      : text_key_(settings.text_key),
        drops_(keys.text("action") == "drop"),
        rule_{keys.whole("context"), keys.whole("least_part"), keys.whole("most_parts")},
        index_(ngrams_of(keys)) {
    verify(drops_ || keys.text("action") == "cut", ErrorKind::configuration, "action '{}': choose one of: cut drop",
           keys.text("action"));
    const std::vector<std::string> tasks = keys.list("tasks"), fields = keys.list("fields");
    verify(!tasks.empty(), ErrorKind::configuration, "decontaminate: give the tasks, as tasks FILE,...");
    visit_task_texts(tasks, fields, [&](std::string_view text) { index_.add_task(text); });
    ngrams_ = index_.size();
    verify(ngrams_ > 0, ErrorKind::configuration,
           "{}: no text of {} words or more under any of {}; fields names the members", keys.text("tasks"),
           keys.whole("shortest_ngram"), keys.text("fields"));
  }

  std::vector<MemberName> members() const override { return {{text_key_}}; }
  std::vector<Rule> rules() const override {
    return {{"cut", false}, {"contaminated"}, {"too_many_parts"}, {"nothing_left"}};
  }
  std::unique_ptr<FirstPass> first_pass(Communicator& world, const std::string&) override {
    return std::make_unique<CountPass>(world, index_, common_);
  }

  bool apply(Document& document, RuleListener& listener) override {
    cut_ = cut_contamination(document.value(0), index_, rule_);
    if (cut_.matches.empty()) return true;
    const Verdict verdict = drops_                ? Verdict::contaminated
                            : cut_.too_many_parts ? Verdict::too_many_parts
                            : cut_.parts.empty()  ? Verdict::nothing_left
                                                  : Verdict::cut;
    listener.met(static_cast<std::size_t>(verdict), cut_.matches.front());
    return verdict == Verdict::cut;
  }
  std::size_t parts() const override { return cut_.matches.empty() ? 1 : cut_.parts.size(); }
  void take_part(Document& document, std::size_t part) override {
    if (!cut_.matches.empty()) document.replace(0, std::string(cut_.parts[part]));
  }

  nlohmann::ordered_json facts() const override {
    return {{"decontamination", {{"ngrams", ngrams_}, {"common_ngrams", common_}}}};
  }

 private:
  enum class Verdict : std::uint8_t { cut, contaminated, too_many_parts, nothing_left };  // places in rules()

  std::string text_key_;
  bool drops_;
  CutRule rule_;
  NgramIndex index_;
  std::uint64_t ngrams_ = 0, common_ = 0;
  CutDocument cut_;  // the last document's
};

}  // namespace

StepRow decontaminate_step() {
  return {"decontaminate",
          "cuts out of documents what evaluation tasks have, or drops them",
          kDecontaminateKeys,
          InputKind::documents,
          [](const StepKeys& keys, const StepSettings& settings) -> std::unique_ptr<Step> {
            return std::make_unique<DecontaminateStep>(keys, settings);
          },
          [](const StepKeys&, std::uint64_t longest) { return 40 * longest; },  // words
          [](const StepKeys&) -> std::string {
            return "besides, each n-gram of the tasks takes about 130 bytes on each rank";
          }};
}

}  // namespace megatron
