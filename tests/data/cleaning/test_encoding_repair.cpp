// Repair of encodings: stored samples and ftfy's answers; good text; each row on and off; hostile texts.
#include "data/cleaning/encoding_repair.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/text/utf8.h"
#include "data/cleaning/html_entities.h"
#include "data/cleaning/linear_work.h"
#include "data/cleaning/undamaged_lines.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using namespace std::string_view_literals;

std::string repaired(std::string_view text, const EncodingRepair::Choice& on = EncodingRepair::defaults()) {
  EncodingRepair repair(on);
  std::string buffer;
  return std::string(repair.repaired(text, buffer));
}

EncodingRepair::Choice without(Repair repair) {
  EncodingRepair::Choice on = EncodingRepair::defaults();
  on[static_cast<std::size_t>(repair)] = false;
  return on;
}

/// Stored samples with another answer than the stored one, on purpose.
struct Difference {
  std::size_t sample;
  std::string_view ours, reason;
};
constexpr std::string_view kComplete =
                               "the sentence as it was before the damage, which the stored answer leaves damaged",
                           kAlone = "a lone 'Ã' before a space may be good text about letters";
constexpr Difference kDifferences[] = {
    {38, "Ã la carte", kAlone},
    {42, "Größere Brücken müssen alle sechs Jahre geprüft werden, auch wenn niemand einen Schaden vermutet hat.",
     kComplete},
    {53, "El niño preguntó dónde estaba la montaña más alta del país, y su abuela señaló hacia el sur.", kComplete},
    {73, "Zażółć gęślą jaźń, powiedział nauczyciel, a dzieci śmiały się z dziwnego zdania.", kComplete},
    {75, "Příliš mnoho lidí čekalo na nádraží, protože vlak měl opět velké zpoždění.", kComplete},
    {109, "הילדים הלכו לבית הספר בבוקר וחזרו הביתה בצהריים.", kComplete},
    {160, "½ × ¾ ± 2°", kComplete},
    {167, "smile 😀!", kComplete},
    {168, "smile 😀!", kComplete},
    {181, "ハンカク", kComplete},
    {183, "ハンカク", kComplete},
    {185, "ハンカク", kComplete},
    {187, "é Å 가", kComplete},
    {188, "é Å 가", kComplete},
    {197, "nul bell", kComplete},
    {202, "Ã la carte", kAlone},
    {204, "Ã la carte", kAlone},
    {205, "Ã la carte", kAlone},
    {218, "Çocuklar öğleden sonra bahçede oynadılar ve akşam eve yorgun döndüler. ½ × ¾ ± 2°", kComplete},
    {224, "Příliš mnoho lidí čekalo na nádraží, protože vlak měl opět velké zpoždění. it's 5 € – or £4…", kComplete},
    {229, "ハンカク ok Fåglarna sjöng högt på morgonen när båten gled över den stilla sjön.", kComplete},
    {239, "A folyó fölött új hidat építenek, hogy a városlakók gyorsabban átérjenek. ok & <b> É ' ' &nosuch;",
     kComplete},
    {245, "El niño preguntó dónde estaba la montaña más alta del país, y su abuela señaló hacia el sur.\n½ × ¾ ± 2°",
     kComplete},
    {246, "Buổi sáng bọn trẻ đi học, đến trưa thì về nhà ăn cơm. ok fine flow 'n dž", kComplete},
    {248, "naïve façade\nÇocuklar öğleden sonra bahçede oynadılar ve akşam eve yorgun döndüler.", kComplete},
    {258, "Às cinco horas da manhã não há ninguém na estação, mas o café já está aberto.\nÃ la carte", kAlone},
    {261, "naïve façade\nFåglarna sjöng högt på morgonen när båten gled över den stilla sjön.", kComplete},
};

EncodingRepair::Choice mojibake_only() {
  EncodingRepair::Choice on{};
  for (const Repair repair :
       {Repair::mojibake, Repair::spaces, Repair::lost_bytes, Repair::mixed_encodings, Repair::c1_controls}) {
    on[static_cast<std::size_t>(repair)] = true;
  }
  return on;
}

}  // namespace

TEST_CASE("encoding repair: stored samples, and where it differs") {
  std::ifstream file(MEGATRON_GOLDEN_FOLDER "/repair.json");
  const auto golden = nlohmann::json::parse(file);
  const auto& samples = golden.at("repairs");
  REQUIRE(samples.size() > 200);
  const Difference* difference = std::begin(kDifferences);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto text = samples[i][0].get<std::string>(), stored = samples[i][1].get<std::string>();
    INFO("sample " << i << ": " << text);
    if (difference != std::end(kDifferences) && difference->sample == i) {
      INFO(difference->reason);
      CHECK(repaired(text) == difference->ours);
      CHECK(stored != difference->ours);
      ++difference;
    } else {
      CHECK(repaired(text) == stored);
    }
  }
  CHECK(difference == std::end(kDifferences));
}

TEST_CASE("encoding repair: good text in many languages stays") {
  static_assert(std::size(kUndamagedLines) >= 60);
  for (const std::string_view line : kUndamagedLines) CHECK(repaired(line, mojibake_only()) == line);
}

TEST_CASE("encoding repair: every good line, damaged, comes back") {
  // As latin-1, which has all bytes: characters U+0080 to U+00FF.
  for (const std::string_view line : kUndamagedLines) {
    std::string damaged;
    for (const char byte : line) append_utf8(damaged, static_cast<unsigned char>(byte));
    CHECK(repaired(damaged, mojibake_only()) == line);
  }
}

TEST_CASE("encoding repair: doubtful characters follow a certain one") {
  CHECK(repaired("IRM\u00C3\u00BB") == "IRM\u00C3\u00BB");
  CHECK(repaired("s\u00C3\u00A3o IRM\u00C3\u00BB") == "s\u00E3o IRM\u00FB");
  CHECK(repaired("l\u2019\u00E9t\u00E9 caf\u221A\u00A9") == "l'\u00E9t\u00E9 caf\u00E9");  // "’é" would be Armenian
  CHECK(repaired("\u00C3\u0192\u00C6\u2019\u00C3\u2020\u00E2\u20AC\u2122\u00C3\u0192\u00E2\u20AC\u0161\u00C3\u201A"
                 "\u00C2\u00A9") == "\u00E9");
  // Two surrogates, each as three bytes.
  CHECK(repaired("\u00ED\u00A0\u00BD\u00ED\u00B8\u0080") == "\U0001F600");
}

TEST_CASE("encoding repair: every row does its part and can be turned off") {
  struct Case {
    Repair repair;
    std::string text, on, off;
  };
  const Case cases[] = {
      {Repair::html_entities, "R&amp;D &EACUTE; &#x41;", "R&D \u00C9 A", "R&amp;D &EACUTE; &#x41;"},
      {Repair::mojibake, "d\u00C3\u00A9j\u00C3\u00A0 vu", "d\u00E9j\u00E0 vu", "d\u00C3\u00A9j\u00C3\u00A0 vu"},
      {Repair::spaces, "voil\u00C3 le port", "voil\u00E0 le port", "voil\u00C3 le port"},
      {Repair::lost_bytes, "\u00E2\u20AC\u0153 like this \u00E2\u20AC\uFFFD", "\" like this \uFFFD",
       "\" like this \u00E2\u20AC\uFFFD"},
      {Repair::mixed_encodings, "\u4E2D \u00E2\u20AC\u201C end", "\u4E2D \u2013 end", "\u4E2D \u00E2\u20AC\" end"},
      {Repair::ligatures, "\uFB01ne", "fine", "\uFB01ne"},
      {Repair::widths, "\uFF26\uFF35\u3000\uFF2C", "FU L", "\uFF26\uFF35\u3000\uFF2C"},
      {Repair::quotes, "\u201Cit\u2019s\u201D", "\"it's\"", "\u201Cit\u2019s\u201D"},
      {Repair::line_ends, "a\r\nb\rc\u2028d", "a\nb\nc\nd", "a\r\nb\rc\u2028d"},
      {Repair::surrogates, "\xED\xA0\xBD\xED\xB8\x80", "\U0001F600", "\uFFFD\uFFFD"},
      {Repair::terminal_escapes, "\x1B[31mred\x1B[0m", "red", "[31mred[0m"},
      {Repair::controls, std::string("a\0b\x07\x7F\uFEFF", 8), "ab", std::string("a\0b\x07\x7F\uFEFF", 8)},
      {Repair::composition, "e\u0301", "\u00E9", "e\u0301"},
  };
  for (const Case& of : cases) {
    INFO(repair_rows()[static_cast<std::size_t>(of.repair)].name);
    CHECK(repaired(of.text) == of.on);
    CHECK(repaired(of.text, without(of.repair)) == of.off);
  }
  CHECK(repaired("a\u0096b") == "a\u2013b");
  CHECK(repaired("a\u0096b", without(Repair::c1_controls)) == "a\u0096b");
}

TEST_CASE("encoding repair: mojibake of mojibake, and of several encodings") {
  CHECK(repaired("\u00C3\u0192\u00C2\u00A9t\u00C3\u0192\u00C2\u00A9") == "\u00E9t\u00E9");
  CHECK(repaired("\u0420\u045F\u0420\u0455\u0420\u00B5\u0420\u00B7\u0420\u0491") == "\u041F\u043E\u0435\u0437\u0434");
  CHECK(repaired("l\u2019\u00E9t\u00E9 \u00E0 Paris, \u00A3 5 \u00BD") ==
        "l'\u00E9t\u00E9 \u00E0 Paris, \u00A3 5 \u00BD");
}

TEST_CASE("encoding repair: entities stay from the first '<' on") {
  CHECK(repaired("&amp;\n&lt;\n<b>&amp;</b>\n&amp;\n") == "&\n<\n<b>&amp;</b>\n&amp;\n");
}

TEST_CASE("encoding repair: a text that needs nothing is not copied") {
  EncodingRepair repair;
  std::string buffer;
  for (const std::string text :
       {"", "plain ASCII\nin lines\t\n", "d\u00E9j\u00E0 vu \u2013 \u041F\u043E\u0435\u0437\u0434", "a & b", "\n"}) {
    const std::string_view same = repair.repaired(text, buffer);
    CHECK(static_cast<const void*>(same.data()) == static_cast<const void*>(text.data()));
    CHECK(same.size() == text.size());
  }
  CHECK(repair.repaired("\uFB01\n\uFB01\nfi", buffer) == "fi\nfi\nfi");
  CHECK(repair.changed_lines()[static_cast<std::size_t>(Repair::ligatures)] == 2);
  CHECK(repair.changed_lines()[static_cast<std::size_t>(Repair::quotes)] == 0);
}

TEST_CASE("encoding repair: any bytes become UTF-8") {
  CHECK(repaired("a\x80z") == "a\uFFFDz");
  CHECK(repaired("\xE2\x82") == "\uFFFD");
  CHECK(repaired("\xF0\x9F\x98 x") == "\uFFFD x");
  CHECK(repaired("\xC0\xAF") == "\uFFFD\uFFFD");
  CHECK(repaired("\xFF") == "\uFFFD");
  CHECK(repaired(std::string(3, '\0')) == "");
  std::uint32_t state = 7;
  EncodingRepair repair;
  std::string text, buffer, again;
  for (int i = 0; i < 2000; ++i) {
    text.clear();
    for (int n = 0; n < 40; ++n) {
      state = state * 1664525 + 1013904223;
      constexpr std::string_view kBytes = "\xC3\xA9\xE2\x80\x99\xED\xA0\xF0\x9F&;#x1a< \n\r\x1B[";
      text.push_back(state >> 31 == 0 ? static_cast<char>(state >> 16) : kBytes[(state >> 16) % kBytes.size()]);
    }
    const std::string_view once = repair.repaired(text, buffer);
    CHECK(first_invalid_utf8(once) == once.size());
  }
}

TEST_CASE("encoding repair: work is linear in the text") {
  for (const std::string_view part :
       {"&amp;"sv, "&"sv, "\u00C3\u0192\u00C2\u00A9"sv, "\u00E2\u20AC"sv, "\u00C3 "sv, "\x1B["sv, "\x1B[1;"sv,
        "\xF0\x9F"sv, "e\u0301"sv, "\u0301"sv, "\xC3\x83\xC2\x83"sv, "\u4E2D\u00C3\u00A9"sv, "\0"sv,
        "\u00D0\u00A0\u00E2\u20AC\u2122"sv}) {
    require_linear(part, 2000, [](const std::string& text) {
      EncodingRepair repair;
      std::string buffer;
      repair.repaired(text, buffer);
      return repair.work();
    });
  }
  // A line that needs as many rounds as there are: each takes one "amp;" off.
  std::string nested = "&" + repeated("amp;", 100'000);
  EncodingRepair repair;
  std::string buffer;
  CHECK(repair.repaired(nested, buffer).size() > nested.size() - 100);
  CHECK(repair.work() < 1000 * nested.size());
}

TEST_CASE("HTML entities: by name, by number, and what is none") {
  CHECK(first_entity("&eacute;x").text == "\u00E9");
  CHECK(first_entity("&eacute;x").bytes == 8);
  CHECK(first_entity("&EACUTE;").text == "\u00C9");
  CHECK(first_entity("&AELIG;").text == "\u00C6");
  CHECK(first_entity("&NBSP;").text == "\u00A0");
  CHECK(first_entity("&EaCUTE;").bytes == 0);
  CHECK(first_entity("&CounterClockwiseContourIntegral;").bytes == kLongestEntity);
  CHECK(first_entity("&#59;").text == ";");
  CHECK(first_entity("&#8217;").text == "\u2019");
  CHECK(first_entity("&#146;").text == "\u2019");
  CHECK(first_entity("&#xD800;").text == "\uFFFD");
  CHECK(first_entity("&#x110000;").text == "\uFFFD");
  CHECK(first_entity("&#99999999999999999999;").text == "\uFFFD");
  CHECK(first_entity("&#1;").text.empty());
  CHECK(first_entity("&#1;").bytes == 4);
  for (const std::string_view none : {"&", "&;", "&#;", "&#x;", "&amp", "&nosuch;", "&#12ab;", "amp;", "& amp;"}) {
    CHECK(first_entity(none).bytes == 0);
  }
}
