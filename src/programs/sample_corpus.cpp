#include "programs/sample_corpus.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "base/core/error.h"
#include "base/core/philox.h"
#include "base/system/durable_file.h"
#include "base/system/errno_text.h"
#include "base/system/file_lock.h"
#include "data/shards/shard_files.h"

namespace megatron {

namespace {

using Words = std::vector<std::string_view>;

/// Draws from lists, one Philox call a draw: the n-th choice of a story.
class Chooser {
 public:
  Chooser(std::uint64_t seed, std::uint64_t story)
      : key_(random_key(seed, 0, hash_name("sample corpus"))), story_(story) {}

  std::size_t below(std::size_t limit) {
    const PhiloxCounter counter{draw_++, static_cast<std::uint32_t>(story_), static_cast<std::uint32_t>(story_ >> 32),
                                0};
    return static_cast<std::size_t>(std::uint64_t{philox4x32(counter, key_)[0]} * limit >> 32);
  }
  template <class List>
  const auto& from(const List& list) {
    return list[below(list.size())];
  }

 private:
  std::uint64_t key_, story_;
  std::uint32_t draw_ = 0;
};

struct Person {
  std::string_view name;
  bool girl;
};

const std::vector<Person> kChildren{{"Lily", true},  {"Anna", true}, {"Mia", true},  {"Sara", true},
                                    {"Rosie", true}, {"Ella", true}, {"Tom", false}, {"Ben", false},
                                    {"Max", false},  {"Sam", false}, {"Leo", false}, {"Jack", false}};
const Words kAnimals{"rabbit", "fox", "bear", "mouse", "duck", "cat", "dog", "squirrel", "frog", "hen"};
const Words kSizes{"little", "small", "tiny", "big", "brave", "shy", "clever", "hungry", "friendly"};
const Words kPlaces{"the river", "the farm",   "the park",     "the beach",
                    "the lake",  "the market", "the old mill", "the pond"};
const Words kColours{"red", "blue", "green", "yellow", "shiny", "soft", "golden", "new"};
const Words kThings{"ball", "kite", "hat", "boat", "bell", "scarf", "drum", "book", "lamp", "basket"};
const Words kFoods{"bread", "honey", "soup", "cake", "berries", "cheese", "nuts", "milk"};
const Words kGrownUps{"Mom", "Dad", "Grandma", "Grandpa", "the teacher", "the farmer", "the baker"};
const Words kWeather{"sunny", "rainy", "windy", "cold", "warm", "snowy", "quiet"};
const Words kHappy{"happy", "glad", "proud", "very happy", "full of joy"};
const Words kSad{"sad", "worried", "afraid", "lonely", "upset"};

// One line of a plot: alternatives of which one is told. {n} the child, {f} the friend, {he} {his} {him} for the child,
// {fhe} {fhis} for the friend, {an} an animal, {t} a thing with its colour, {o} the thing alone, {p} a place.
const std::vector<Words> kOpenings{
    {"Once upon a time there was a {sex} named {n}.", "There once was a {sex} called {n}.",
     "One day a {size} {sex} named {n} woke up early."},
    {"{n} lived near {p} with {g}.", "{n} loved to play at {p}.", "{n} had a best friend named {f}.",
     "It was a {w} day, and {n} wanted to go to {p}."}};

const std::vector<std::vector<Words>> kPlots{
    {// lost and found
     {"{n} had a {t}, and {he} loved it very much.", "For {his} birthday, {n} got a {t} from {g}.",
      "{n} always took {his} {t} to {p}."},
     {"But one day the {o} was gone.", "Then the wind took the {o} away.", "One day {n} could not find the {o}."},
     {"{n} was {sad} and began to cry.", "\"Where is my {o}?\" asked {n}.", "{n} felt {sad}."},
     {"{f} came and said, \"Do not cry, I will help you.\"", "\"Let us look for it together,\" said {f}.",
      "{n} asked {f} for help, and {fhe} said yes."},
     {"They looked under the bed, behind the door and in {p}.", "They went to {p} and looked everywhere.",
      "They looked and looked until the sun went down."},
     {"At last {f} saw the {t} in a tree.", "Then they met a {size} {an}. The {an} had the {t}!",
      "There it was: the {t} was under a bush at {p}."},
     {"{n} was {happy} and hugged {f}.", "\"Thank you, {f}!\" said {n}. {He} was {happy}.",
      "{n} smiled. \"You are a good friend,\" {he} said."}},
    {// sharing
     {"One morning {n} packed some {food} and walked to {p}.", "{g} gave {n} some {food} for lunch."},
     {"On the way {he} met a {size} {an}.", "At {p} {he} saw a {size} {an} under a tree."},
     {"\"I am so hungry,\" said the {an}.", "The {an} looked {sad}. \"I have nothing to eat,\" it said.",
      "\"Please, may I have some {food}?\" asked the {an}."},
     {"{n} thought for a moment. {He} wanted all the {food}.", "At first {n} did not want to share the {food}."},
     {"But then {he} gave half of the {food} to the {an}.", "\"We can share,\" said {n}, and they sat down to eat."},
     {"The {an} was {happy}. \"Now I will show you a secret,\" it said.",
      "\"You are kind,\" said the {an}. \"Come with me.\""},
     {"It led {n} to {p}, and there was a {t}.", "Behind a big stone there was a {t}, just for {n}."},
     {"{n} learned that it is good to share.", "From that day on, {n} and the {an} were friends."}},
    {// a fear
     {"{n} was afraid of the dark.", "{n} was afraid of the water at {p}.", "{n} did not dare to climb the big tree."},
     {"{f} was not afraid at all.", "All the other children laughed, but {f} did not.",
      "\"Everybody is afraid sometimes,\" said {g}."},
     {"{f} gave {n} a {t}. \"Hold this when you feel {sad},\" {fhe} said.",
      "{f} took {his} hand and said, \"We will do it together.\""},
     {"That night they heard a strange noise.", "Then they heard a small voice. \"Help, help!\""},
     {"It was a {size} {an} that could not find the way home.", "A {an} was stuck between two stones."},
     {"{n} forgot {his} fear and ran to help.", "{n} took a deep breath and went to help the {an}."},
     {"\"You are very brave,\" said {f}.", "The {an} said thank you, and {g} was proud of {n}."},
     {"{n} was not afraid any more.", "After that, {n} felt {happy}."}},
    {// making something
     {"{n} wanted to make a present for {g}.", "{n} and {f} wanted to build a house for a {an}."},
     {"They needed wood, a rope and a {t}.", "\"We need a {t},\" said {f}.", "First they had to find a {t}."},
     {"{n} went to {p}, and {f} went to ask {g}.", "They worked all morning at {p}."},
     {"But it broke, and {n} was {sad}.", "Then it began to rain, and everything got wet.",
      "It was hard work, and {n} wanted to stop."},
     {"\"Let us try again,\" said {f}.", "{f} said, \"If we work together, we can do it.\""},
     {"They tried again, and this time it worked.", "In the end it was even better than before."},
     {"{g} was {happy} and gave them some {food}.", "A {size} {an} came to see it and was {happy}."},
     {"{n} and {f} were tired but {happy}.", "\"That was fun,\" said {n}."}}};

const Words kEndings{"Then they all went home and ate {food}.", "And {n} slept well that night.", "The end.",
                     "They played together until the evening.", "And they lived happily ever after."};

/// Everything that stays the same through a story.
class Cast {
 public:
  explicit Cast(Chooser& choose) {
    const Person& child = choose.from(kChildren);
    const Person* other = &choose.from(kChildren);
    while (other->name == child.name) other = &choose.from(kChildren);
    thing_ = choose.from(kThings);
    words_ = {{"n", child.name},
              {"sex", child.girl ? "girl" : "boy"},
              {"he", child.girl ? "she" : "he"},
              {"He", child.girl ? "She" : "He"},
              {"his", child.girl ? "her" : "his"},
              {"him", child.girl ? "her" : "him"},
              {"f", other->name},
              {"fhe", other->girl ? "she" : "he"},
              {"fhis", other->girl ? "her" : "his"},
              {"an", choose.from(kAnimals)},
              {"size", choose.from(kSizes)},
              {"p", choose.from(kPlaces)},
              {"t", ""},
              {"o", thing_},
              {"food", choose.from(kFoods)},
              {"g", choose.from(kGrownUps)},
              {"w", choose.from(kWeather)},
              {"happy", choose.from(kHappy)},
              {"sad", choose.from(kSad)}};
    coloured_thing_ = std::string(choose.from(kColours)) + " " + std::string(thing_);
  }

  /// The sentence with its placeholders filled in; it begins with a capital letter.
  std::string tell(std::string_view sentence) const {
    std::string text;
    while (!sentence.empty()) {
      const std::size_t open = std::min(sentence.find('{'), sentence.size());
      text += sentence.substr(0, open);
      sentence.remove_prefix(open);
      if (sentence.empty()) break;
      const std::size_t close = sentence.find('}');
      text += word(sentence.substr(1, close - 1));
      sentence.remove_prefix(close + 1);
    }
    if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
  }

 private:
  std::string_view word(std::string_view name) const {
    if (name == "t") return coloured_thing_;
    for (const auto& [key, value] : words_) {
      if (key == name) return value;
    }
    internal_check(false, "unknown placeholder in a story");
    return {};
  }

  std::vector<std::pair<std::string_view, std::string_view>> words_;
  std::string_view thing_;
  std::string coloured_thing_;
};

}  // namespace

std::string sample_story(std::uint64_t seed, std::uint64_t number) {
  Chooser choose(seed, number);
  const Cast cast(choose);
  std::string story;
  const auto tell = [&](std::span<const Words> lines) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (!story.empty() && story.back() != '\n') story += ' ';
      story += cast.tell(choose.from(lines[i]));
    }
  };
  tell(kOpenings);
  story += '\n';
  tell(choose.from(kPlots));
  story += '\n';
  tell(std::span(&kEndings, 1));
  return story;
}

SampleCorpusSummary write_sample_corpus(const std::string& path, std::uint64_t bytes, std::uint64_t seed,
                                        bool overwrite) {
  const std::string temporary = temporary_name(path);
  check_prefix(path, "--output");
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::symlink_status(path, error);
  // Devices too would be replaced, by who may: sample-corpus --output /dev/null.
  verify(!std::filesystem::exists(there) || std::filesystem::is_regular_file(there), ErrorKind::configuration,
         "{} is there already and is not a regular file; choose another name", path);
  const TargetLock lock(path);
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(temporary.c_str(), "wb"), std::fclose);
  if (file == nullptr) fail(ErrorKind::filesystem, "{}: cannot write it: {}", temporary, errno_text(errno));
  SampleCorpusSummary summary;
  int reason = 0;
  while (reason == 0 && summary.bytes < bytes) {
    const std::string line = nlohmann::json{{"text", sample_story(seed, summary.stories)}}.dump() + "\n";
    if (std::fwrite(line.data(), 1, line.size(), file.get()) != line.size()) reason = errno;
    summary.bytes += line.size();
    ++summary.stories;
  }
  if (std::fclose(file.release()) != 0 && reason == 0) reason = errno;
  if (reason != 0) {
    remove_quietly(temporary);
    fail(ErrorKind::filesystem, "{}: cannot write it: {}", temporary, errno_text(reason));
  }
  sync_path(temporary);
  if (!overwrite && !replaces_nothing_else(temporary, path)) {
    remove_quietly(temporary);
    fail(ErrorKind::configuration, "{} exists already; choose another name, or replace it with --overwrite", path);
  }
  rename_durably(temporary, path);
  remove_temporaries({path});
  return summary;
}

}  // namespace megatron
