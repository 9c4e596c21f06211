// sample, split, shuffle and merge: which documents go where, by a seed and their numbers in the input alone, so that
// the result is the same for any number of ranks.
#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "base/core/error.h"
#include "base/core/philox.h"
#include "data/cleaning_steps/step.h"

namespace megatron {

namespace {

constexpr KeyRow kSeed = {"seed", KeyKind::whole, "1", "S", "another seed, another choice"};

/// The same for the same number, and as good as random.
std::uint64_t draw(std::uint64_t seed, std::string_view purpose, std::uint64_t number) {
  return mix64(random_key(seed, number, hash_name(purpose)));
}

/// The share of all draws that are smaller, times 2^64.
std::uint64_t below(double share) {
  constexpr double kAll = 18446744073709551616.0;
  return !(share < 1) ? UINT64_MAX : static_cast<std::uint64_t>(share * kAll);
}

class OrderStep : public Step {
 public:
  explicit OrderStep(std::vector<MemberName> members = {}) : members_(std::move(members)) {}
  std::vector<MemberName> members() const override { return members_; }
  std::vector<Rule> rules() const override { return {}; }
  bool apply(Document&, RuleListener&) override { return true; }

 private:
  std::vector<MemberName> members_;
};

// ---- sample

constexpr KeyRow kSampleKeys[] = {
    {"fraction", KeyKind::number, "0", "F", "each document is kept with this probability"},
    {"documents", KeyKind::whole, "0", "N", "this number of them is kept, instead"},
    kSeed,
};

class SampleStep final : public OrderStep {
 public:
  explicit SampleStep(const StepKeys& keys)
      : fraction_(keys.number("fraction")), documents_(keys.whole("documents")), seed_(keys.whole("seed")) {
    verify((fraction_ > 0) != (documents_ > 0), ErrorKind::configuration,
           "sample: give one of fraction and documents, more than 0");
    verify(fraction_ <= 1, ErrorKind::configuration, "fraction {}: 1 at most", fraction_);
    largest_ = {below(fraction_), 0};
  }
  std::vector<Rule> rules() const override { return {{"not_sampled"}}; }
  bool needs_count() const override { return documents_ > 0; }
  /// Finds the largest of the smallest draws that are to be kept.
  void prepare(std::uint64_t count) override {
    if (count <= documents_) {
      largest_ = {UINT64_MAX, UINT64_MAX};
      return;
    }
    std::priority_queue<std::pair<std::uint64_t, std::uint64_t>> smallest;
    for (std::uint64_t number = 0; number < count; ++number) {
      const std::pair drawn(draw(seed_, "sample", number), number);
      if (smallest.size() == documents_ && drawn > smallest.top()) continue;
      smallest.push(drawn);
      if (smallest.size() > documents_) smallest.pop();
    }
    largest_ = smallest.top();
  }
  std::optional<std::size_t> place(std::uint64_t number, std::optional<std::uint64_t>) const override {
    const std::uint64_t drawn = draw(seed_, "sample", number);
    const bool kept = documents_ > 0 ? std::pair(drawn, number) <= largest_ : fraction_ == 1 || drawn < largest_.first;
    return kept ? std::optional<std::size_t>(0) : std::nullopt;
  }

 private:
  double fraction_;
  std::uint64_t documents_, seed_;
  std::pair<std::uint64_t, std::uint64_t> largest_;
};

// ---- split

constexpr KeyRow kSplitKeys[] = {
    {"parts", KeyKind::text, "train=0.98,validation=0.01,test=0.01", "NAME=SHARE,...",
     "the parts, a file for each, and their shares of the documents"},
    {"by", KeyKind::text, "", "KEY",
     "documents with the same value of this member go to the same part, also in another corpus; default: by number"},
    kSeed,
};

struct Part {
  std::string name;
  double share = 0;
};

std::vector<Part> parts_of(const std::string& text) {
  std::vector<Part> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    const std::size_t equals = std::min(word.find('='), word.size());
    Part part{word.substr(0, equals)};
    char* rest = nullptr;
    if (equals < word.size()) part.share = std::strtod(word.c_str() + equals + 1, &rest);
    const bool named = !part.name.empty() && std::all_of(part.name.begin(), part.name.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-';
    });
    verify(named && rest != nullptr && *rest == '\0' && part.share > 0 && std::isfinite(part.share),
           ErrorKind::configuration,
           "parts: '{}' should be NAME=SHARE, with a name of letters, digits, _ and -, and a share of more than 0",
           word);
    verify(std::none_of(parts.begin(), parts.end(), [&](const Part& other) { return other.name == part.name; }),
           ErrorKind::configuration, "parts: {} is there twice", part.name);
    parts.push_back(std::move(part));
    at = end + 1;
  }
  return parts;
}

class SplitStep final : public OrderStep {
 public:
  explicit SplitStep(const StepKeys& keys)
      : OrderStep(keys.text("by").empty() ? std::vector<MemberName>{} : std::vector<MemberName>{{keys.text("by")}}),
        by_member_(!keys.text("by").empty()),
        seed_(keys.whole("seed")),
        parts_(parts_of(keys.text("parts"))) {
    double all = 0, sum = 0;
    for (const Part& part : parts_) all += part.share;
    verify(std::isfinite(all), ErrorKind::configuration, "parts: the shares are too large");
    for (const Part& part : parts_) borders_.push_back(below((sum += part.share) / all));
    borders_.back() = UINT64_MAX;
  }
  std::vector<std::string> outputs() const override {
    std::vector<std::string> names;
    for (const Part& part : parts_) names.push_back(part.name);
    return names;
  }
  std::optional<std::uint64_t> place_by(const Document& document) const override {
    if (!by_member_) return std::nullopt;
    return hash_text(document.value(0)).low;
  }
  std::optional<std::size_t> place(std::uint64_t number, std::optional<std::uint64_t> by) const override {
    const std::uint64_t drawn = draw(seed_, "split", by.value_or(number));
    std::size_t part = 0;
    while (part + 1 < borders_.size() && drawn >= borders_[part]) ++part;
    return part;
  }

 private:
  bool by_member_;
  std::uint64_t seed_;
  std::vector<Part> parts_;
  std::vector<std::uint64_t> borders_;
};

// ---- shuffle

constexpr KeyRow kShuffleKeys[] = {kSeed};

class ShuffleStep final : public OrderStep {
 public:
  explicit ShuffleStep(const StepKeys& keys) : seed_(keys.whole("seed")) {}
  bool reorders() const override { return true; }
  std::uint64_t order_key(std::uint64_t number) const override { return draw(seed_, "shuffle", number); }

 private:
  std::uint64_t seed_;
};

template <class S>
std::unique_ptr<Step> make(const StepKeys& keys, const StepSettings&) {
  return std::make_unique<S>(keys);
}

std::unique_ptr<Step> make_merge(const StepKeys&, const StepSettings&) {
  return std::make_unique<OrderStep>();
}

}  // namespace

StepRow sample_step() {
  return {"sample", "keeps some of the documents, chosen by a seed, in their order", kSampleKeys,
          InputKind::documents_and_lists, make<SampleStep>};
}

StepRow split_step() {
  return {"split", "divides the documents among several files, by a seed", kSplitKeys, InputKind::documents_and_lists,
          make<SplitStep>};
}

StepRow shuffle_step() {
  return {"shuffle", "puts the documents into another order, by a seed", kShuffleKeys, InputKind::documents_and_lists,
          make<ShuffleStep>};
}

StepRow merge_step() {
  return {"merge",
          "makes one file of several, in the order they are given",
          {},
          InputKind::documents_and_lists,
          make_merge};
}

}  // namespace megatron
