// duplicates: of documents with the same or a similar text the first one stays; or of paragraphs or lines with the same
// text.
#include "base/core/error.h"
#include "base/text/byte_text.h"
#include "data/cleaning_steps/duplicates_pass.h"
#include "data/cleaning_steps/step.h"

namespace megatron {

namespace {

constexpr KeyRow kDuplicatesKeys[] = {
    {"by", KeyKind::text, "document", "document|paragraph|line",
     "what is compared; of paragraphs and lines only equal ones are removed"},
    {"exact", KeyKind::flag, "true", "true|false", "equal texts, whatever their white space, are duplicates"},
    {"near", KeyKind::flag, "true", "true|false", "documents of similar texts are duplicates"},
    {"shingles", KeyKind::text, "words", "words|characters|megatron",
     "what similar texts have in common: 5 words, 24 characters, or 5 bytes as Megatron-LM's", "megatron"},
    {"threshold", KeyKind::threshold, "on", "J|on",
     "Jaccard similarity at which pairs begin to be found; on: 0.7, for megatron 0.8"},
    {"hashes", KeyKind::threshold, "on", "N|on", "most hashes of a signature; on: 128, for megatron 100"},
    {"check", KeyKind::threshold, "on", "J|on|off",
     "texts that were found are compared, and are duplicates with this Jaccard similarity; on: 0.7"},
    {"least_part", KeyKind::whole, "20", "N", "paragraphs and lines of fewer characters are left alone"},
    {"sort_memory", KeyKind::whole, "256", "MIB", "memory of a rank for sorting"},
};

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20, kMillion = 1000000;

NearDuplicates near_of(const StepKeys& keys) {
  const ShingleKind& kind = shingle_kind(keys.text("shingles"));
  const auto given = [&](const char* name, double usual) {
    const std::optional<double> value = keys.threshold(name, usual);
    verify(value.has_value(), ErrorKind::configuration, "{}: 'off' should be a number or on; near=false does without",
           name);
    return *value;
  };
  constexpr double kMostHashes = 4096;
  const double hashes = given("hashes", kind.hashes);
  verify(hashes <= kMostHashes && hashes == static_cast<int>(hashes), ErrorKind::configuration,
         "hashes {}: should be a whole number of at most {}", hashes, kMostHashes);
  NearDuplicates near;
  near.signatures = kind.signatures;
  near.plan = plan_bands(static_cast<int>(hashes), given("threshold", kind.threshold));
  const std::optional<double> check = keys.threshold("check", kind.check_threshold);
  verify(!check || *check <= 1, ErrorKind::configuration, "check {}: 1 at most", check.value_or(0));
  near.check.reset();
  if (check) near.check = NearDuplicates::Check{kind.check, Overlap::all, *check};
  return near;
}

DuplicatesPlan plan_of(const StepKeys& keys) {
  constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 20;
  DuplicatesPlan plan;
  plan.by = compared_part_of(keys.text("by"));
  plan.least_part = keys.whole("least_part");
  const std::uint64_t memory = keys.whole("sort_memory");
  verify(memory >= 1 && memory <= kMostMemory, ErrorKind::configuration, "sort_memory {}: from 1 to {}", memory,
         kMostMemory);
  plan.search.memory_bytes = memory * kMebibyte;
  plan.search.near.reset();
  if (!keys.flag("exact")) plan.search.exact.reset();
  if (keys.flag("near") && plan.by == ComparedPart::document) plan.search.near = near_of(keys);
  verify(plan.search.exact || plan.search.near, ErrorKind::configuration,
         "duplicates: neither exact ones nor near ones are wanted{}",
         plan.by == ComparedPart::document ? "" : "; of paragraphs and lines there are only exact ones");
  return plan;
}

class DuplicatesStep final : public Step {
 public:
  DuplicatesStep(const StepKeys& keys, const StepSettings& settings)
      : text_key_(settings.text_key), plan_(plan_of(keys)) {}

  std::vector<MemberName> members() const override { return {{text_key_}}; }
  std::vector<Rule> rules() const override {
    if (plan_.by == ComparedPart::document) return {{"duplicate"}};
    return {{"duplicate_parts", false}, {"nothing_left"}};
  }
  std::unique_ptr<FirstPass> first_pass(Communicator& world, const std::string& scratch) override {
    return std::make_unique<DuplicatesPass>(world, plan_, scratch, found_);
  }
  void begin_block() override { next_ = found_.blocks.at(block_++); }

  bool apply(Document& document, RuleListener& listener) override {
    if (plan_.by != ComparedPart::document) return apply_to_parts(document, listener);
    if (!found_.all.removed[next_++]) return true;
    listener.met(0);
    return false;
  }

  nlohmann::ordered_json facts() const override {
    nlohmann::ordered_json clusters = nlohmann::ordered_json::object();
    for (const auto& [size, count] : found_.all.cluster_sizes) clusters[std::to_string(size)] = count;
    const DuplicateCounts& counts = found_.all.counts;
    nlohmann::ordered_json facts = {{"compared", found_.numbered}, {"removed", counts.removed}};
    if (plan_.search.exact) facts["equal"] = counts.exact;
    if (plan_.search.near) {
      facts["candidate_pairs"] = counts.candidates;
      facts["confirmed_pairs"] = counts.confirmed;
    }
    facts["clusters_of_size"] = std::move(clusters);
    return {{"duplicates", std::move(facts)}};
  }

 private:
  bool apply_to_parts(Document& document, RuleListener& listener) {
    const std::string_view text = document.value(0);
    std::string left;
    std::string_view first_removed;
    bool last_removed = false;
    for (const std::string_view part : parts_of_text(text, plan_.by)) {
      last_removed = plan_.compares(part) && found_.all.removed[next_++];
      if (!last_removed) left += part;
      if (last_removed && first_removed.empty()) first_removed = part;
    }
    if (first_removed.empty()) return true;
    const std::size_t end = left.find_last_not_of(" \t\r\n");
    if (end == std::string::npos) {
      listener.met(1);
      return false;
    }
    if (last_removed) left.resize(end + 1);
    listener.met(0, first_removed);
    document.replace(0, std::move(left));
    return true;
  }

  std::string text_key_;
  DuplicatesPlan plan_;
  FoundDuplicates found_;
  std::size_t block_ = 0;
  std::uint64_t next_ = 0;  // the number of the next document or part
};

std::string note_of(const StepKeys& keys) {
  const DuplicatesPlan plan = plan_of(keys);
  const std::string things = plan.by == ComparedPart::document ? "documents" : keys.text("by") + "s";
  std::string note;
  if (plan.search.near) note += plan.search.near->plan.to_string() + "\n";
  const auto bytes = [](std::uint64_t count) { return format_bytes(static_cast<double>(count)); };
  note += fmt::format("a million {} take at most {} of scratch files in the output's folder", things,
                      bytes(2 * scratch_bytes(plan.search, kMillion)));
  if (plan.checks()) note += fmt::format(", and for the check {} and the size of their texts", bytes(24 * kMillion));
  return note +
         fmt::format("; {} of memory on rank 0, {} on others", bytes(8 * kMillion + kMillion / 8), bytes(kMillion / 8));
}

}  // namespace

StepRow duplicates_step() {
  return {"duplicates",
          "removes documents whose text, or a similar one, was there before",
          kDuplicatesKeys,
          InputKind::documents_and_lists,
          [](const StepKeys& keys, const StepSettings& settings) -> std::unique_ptr<Step> {
            return std::make_unique<DuplicatesStep>(keys, settings);
          },
          [](const StepKeys& keys, std::uint64_t longest) {
            // Hashes of a text's shingles and where they begin, or its paragraphs and lines.
            return plan_of(keys).search.memory_bytes + kRoundsBytes + 48 * longest;
          },
          note_of};
}

}  // namespace megatron
