// Texts in parts, for every kind of tokenizer: the ids are those of the whole text, and each token has the part that
// the offsets of Hugging Face's library and SentencePiece's give it (scripts/golden/make_text_parts_golden.py).
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/text_normalizer.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "data/unicode/normalization.h"
#include "gpt2_support.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

using Ids = std::vector<std::int32_t>;
using Numbers = std::vector<std::uint32_t>;

const std::string kFolder = MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/";

std::unique_ptr<Tokenizer> tokenizer_of(const std::string& file) {
  std::string name = file.starts_with("unigram") ? "unigram" : "gpt2";
  if (file.ends_with(".model")) name = "sentencepiece";
  if (file.starts_with("bert")) name = file == "bert_lower_accents.json" ? "bert-uncased" : "bert-cased";
  return make_tokenizer({name, kFolder + file, ""});
}

/// Where the characters of a text begin, and where it ends.
std::vector<std::size_t> places_of(const std::string& text) {
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < text.size(); at += first_code_point(text.substr(at)).bytes) places.push_back(at);
  places.push_back(text.size());
  return places;
}

/// Whether a character joins the one in front of it in some normal form: their library's offsets cut such in two.
bool joins(std::string_view rest) {
  const std::uint32_t c = first_code_point(rest).value;
  return combining_class(c) != 0 || c - 0x1161 < 0x9F || c - 0x1F3FB < 5;
}

struct Parted {
  Ids ids;
  Numbers part_of;
};
Parted parted(Encoder& encoder, const std::vector<TextPart>& parts) {
  Parted made;
  encoder.encode_parts(parts, made.ids, made.part_of);
  CHECK(made.ids.size() == made.part_of.size());
  CHECK(std::is_sorted(made.part_of.begin(), made.part_of.end()));
  return made;
}

/// A token of their library, in bytes of the text.
struct Span {
  std::size_t begin, end;
  bool in_front_of(std::size_t border) const { return end <= border && begin < border; }
};

/// Whether several tokens have the same span of several characters, as bytes of unknown characters have there; they
/// have their own places here.
bool is_shared(const std::vector<Span>& spans, std::size_t border) {
  return std::count_if(spans.begin(), spans.end(), [&](Span s) { return s.begin < border && border < s.end; }) > 1;
}

}  // namespace

TEST_CASE("text parts: tokens have the parts that offsets give them", "[text_parts]") {
  const json kinds = json::parse(std::ifstream(kFolder + "parts.json"));
  REQUIRE(kinds.size() == 16);
  for (const auto& [file, cases] : kinds.items()) {
    INFO(file);
    const auto tokenizer = tokenizer_of(file);
    const auto encoder = tokenizer->make_encoder();
    for (const json& one : cases) {
      const std::string text = one.at("text");
      const SpecialTokens special = one.at("special") ? SpecialTokens::tokens : SpecialTokens::text;
      INFO(one.at("text").dump(-1, ' ', true));
      const std::vector<std::size_t> places = places_of(text);
      Ids ids;
      std::vector<Span> spans;
      for (const json& token : one.at("tokens")) {
        ids.push_back(token.at(0));
        spans.push_back({places.at(token.at(1)), places.at(token.at(2))});
      }
      for (const std::size_t place : places) {
        INFO("border at byte " << place);
        const std::string_view all = text;
        const Parted made =
            parted(*encoder, {{all.substr(0, place), special}, {"", special}, {all.substr(place), special}});
        CHECK(made.ids == ids);
        if (place == text.size() || joins(all.substr(place)) || is_shared(spans, place)) continue;
        const auto before = std::count_if(spans.begin(), spans.end(), [&](Span s) { return s.in_front_of(place); });
        CHECK(std::count(made.part_of.begin(), made.part_of.end(), 0U) == before);
      }
    }
  }
}

TEST_CASE("text parts: special tokens are found in the parts that ask for them", "[text_parts]") {
  const auto tokens = SpecialTokens::tokens, text = SpecialTokens::text;
  for (const char* const file : {"unigram_xlm.json", "spm_t5.model", "llama3.json", "bert_bare_case.json"}) {
    INFO(file);
    const auto tokenizer = tokenizer_of(file);
    const auto encoder = tokenizer->make_encoder();
    const std::string name = std::string(file).starts_with("bert") ? "[SEP]" : tokenizer->eod_text();
    const std::int32_t id = std::string(file).starts_with("bert") ? tokenizer->special_ids().sep : tokenizer->eod_id();
    const auto found = [&](const std::vector<TextPart>& parts) {
      const Parted made = parted(*encoder, parts);
      Numbers of;
      for (std::size_t i = 0; i < made.ids.size(); ++i) {
        if (made.ids[i] == id) of.push_back(made.part_of[i]);
      }
      return of;
    };
    CHECK(found({{"a ", text}, {name, tokens}, {" b " + name, text}, {name + name, tokens}}) == Numbers{1, 3, 3});
    const std::string_view whole = name;
    CHECK(found({{whole.substr(0, 2), tokens}, {"", text}, {whole.substr(2), tokens}}) == Numbers{2});
    CHECK(found({{whole.substr(0, 2), tokens}, {whole.substr(2), text}}).empty());
    CHECK(found({{whole.substr(0, 2), text}, {whole.substr(2), tokens}}).empty());
  }
}

TEST_CASE("text parts: bytes, empty parts and what several parts share", "[text_parts]") {
  const auto bytes = make_tokenizer({.name = "byte", .vocab_file = {}, .merge_file = {}});
  const Parted of_bytes = parted(*bytes->make_encoder(), {{""}, {"a\n"}, {""}, {" b"}, {""}});
  CHECK(of_bytes.ids == Ids{'a', '\n', ' ', 'b'});
  CHECK(of_bytes.part_of == Numbers{1, 1, 3, 3});
  CHECK(parted(*bytes->make_encoder(), {}).ids.empty());
  CHECK(parted(*bytes->make_encoder(), {{""}, {""}}).ids.empty());

  // GPT-2's pattern: a word has the space in front of it, and the later part.
  const auto gpt2 = small_tokenizer();
  const auto encoder = gpt2->make_encoder();
  const Parted prompt = parted(*encoder, {{"A: "}, {"the "}, {"end\n"}});
  CHECK(prompt.ids == encode(*encoder, "A: the end\n"));
  std::vector<std::string> texts(3);
  for (std::size_t i = 0; i < prompt.ids.size(); ++i) texts[prompt.part_of[i]] += gpt2->decode(Ids{prompt.ids[i]});
  CHECK(texts == std::vector<std::string>{"A:", " the", " end\n"});
}

TEST_CASE("text parts: borders follow spaces that a normalizer removes", "[text_parts]") {
  std::vector<NormalizerStep> steps(2);
  steps[0].kind = NormalizerStep::Kind::strip;
  steps[0].left = steps[0].right = true;
  steps[1].kind = NormalizerStep::Kind::lower_case;
  TextNormalizer normalizer(steps);
  const std::vector<TextPart> parts = {{" AB  "}, {" "}, {" "}};
  PartBorders borders{std::span(parts)};
  CHECK(normalizer.normalized(" AB    ", borders) == "ab");
  CHECK(borders.part_at(1) == 0);
  CHECK(borders.part_at(2) == 2);
}

TEST_CASE("text parts: time is linear in their number", "[text_parts]") {
  constexpr std::size_t kParts = 40'000;
  std::vector<NormalizerStep> steps(1);
  steps[0].kind = NormalizerStep::Kind::nfc;
  // Characters without visible ASCII among them; parts that end in a special token.
  const std::string han = "\u6771\u4eac\u90fd", marks = "e\u0301\u0300 ";
  const AddedTokens added({{.content = "|", .id = 1, .special = false}});
  const std::clock_t start = std::clock();
  for (const std::string& text : {han, marks}) {
    const std::vector<TextPart> parts(kParts, TextPart{text});
    std::string all;
    for (const TextPart& part : parts) all += part.text;
    PartBorders borders{std::span(parts)};
    TextNormalizer normalizer(steps);
    const std::string_view made = normalizer.normalized(all, borders);
    for (std::size_t at = 0; at < made.size(); ++at) REQUIRE(borders.part_at(at) == at / (made.size() / kParts));
  }
  const std::vector<TextPart> parts(kParts, TextPart{"a|"});
  std::string all;
  for (const TextPart& part : parts) all += part.text;
  std::size_t found = 0;
  added.split(
      all, PartBorders{std::span(parts)}, [&](std::string_view, const PartBorders&) { ++found; },
      [&](std::int32_t, std::uint32_t part) { CHECK(part == found - 1); });
  CHECK(found == kParts);
  CHECK(std::clock() - start < 20 * CLOCKS_PER_SEC);  // with squares it is minutes
}

TEST_CASE("text parts: ids equal the whole text's for random texts and parts", "[text_parts]") {
  Draw draw(7);
  for (const char* const file : {"llama3.json", "qwen2.json", "flags.json", "unigram_t5.json", "unigram_bytes.json",
                                 "unigram_whole.json", "bert_bare_case.json", "spm_llama.model", "spm_t5.model"}) {
    INFO(file);
    const auto tokenizer = tokenizer_of(file);
    const auto whole = tokenizer->make_encoder(), in_parts = tokenizer->make_encoder();
    for (int round = 0; round < 200; ++round) {
      std::string text;
      std::vector<std::string> texts;
      for (std::uint64_t i = 1 + draw.below(6); i > 0; --i)
        text += texts.emplace_back(random_utf8(draw, draw.below(12)));
      std::vector<TextPart> parts;
      for (const std::string& part : texts) parts.push_back({part});
      const Parted made = parted(*in_parts, parts);
      CHECK(made.ids == encode(*whole, text));
      CHECK((made.part_of.empty() || made.part_of.back() < texts.size()));
    }
  }
}
