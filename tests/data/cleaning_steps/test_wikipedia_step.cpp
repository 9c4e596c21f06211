// The step wikipedia: dumps to documents on any number of ranks, what is left out, and dumps that are damaged.
#include <bzlib.h>

#include "data/cleaning_steps/clean_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const std::string kHead =
    "<mediawiki xml:lang=\"de\">\n<siteinfo><base>https://de.wiki.example/wiki/Main</base><namespaces>"
    "<namespace key=\"6\">Datei</namespace></namespaces></siteinfo>\n";
const std::string kEnd = "</mediawiki>\n";

std::string page(const std::string& id, const std::string& title, const std::string& text,
                 const std::string& space = "0") {
  return "  <page>\n<title>" + title + "</title><ns>" + space + "</ns><id>" + id + "</id>\n<revision><text>" + text +
         "</text></revision>\n</page>\n";
}

std::string dump(int pages) {
  std::string xml = kHead;
  for (int i = 0; i < pages; ++i) {
    std::string text = "'''No. " + std::to_string(i) + "''' of {{a|b}} [[page|pages]].\n";
    for (int line = 0; line < i % 40; ++line) text += "* item " + std::to_string(line) + " &amp;lt; [[Datei:x.png]]\n";
    xml += page(std::to_string(i), "T " + std::to_string(i), text, i % 5 == 4 ? "1" : "0");
  }
  return xml + kEnd;
}

std::string bzip2_of(std::string text) {
  std::string out(text.size() + text.size() / 100 + 600, '\0');
  auto bytes = static_cast<unsigned>(out.size());
  REQUIRE(::BZ2_bzBuffToBuffCompress(out.data(), &bytes, text.data(), static_cast<unsigned>(text.size()), 1, 0, 0) ==
          BZ_OK);
  out.resize(bytes);
  return out;
}

}  // namespace

TEST_CASE("wikipedia: the same bytes on 1, 2, 3 and 8 ranks, and from bzip2", "[clean][wikipedia][fault-140]") {
  const ShardFolder folder;
  const std::string all = dump(120);
  write_file(folder.file("a.xml"), all);
  write_file(folder.file("b.xml.bz2"), bzip2_of(all.substr(0, 9000)) + bzip2_of(all.substr(9000)));
  require_same_everywhere(folder, job_of(folder, "wikipedia", {"a.xml", "b.xml.bz2"}));
  const StepResult result = play(job_of(folder, "wikipedia", {"a.xml", "b.xml.bz2"}), 3);
  CHECK(result.provenance["documents"]["read"] == 240);
  CHECK(result.provenance["documents"]["kept"] == 192);
  const std::string lines = documents(folder);
  CHECK((lines.substr(0, lines.size() / 2) == lines.substr(lines.size() / 2)));
}

TEST_CASE("wikipedia: members of an article, and pages that are none", "[clean][wikipedia]") {
  const ShardFolder folder;
  write_file(folder.file("a.xml"), kHead + page("7", "A &amp; \"B\"", "x [[Datei:a.png]] y\n\n== H ==\nz&lt;br&gt;\\") +
                                       page("8", "R", "#REDIRECT [[A]]") + page("9", "Diskussion:A", "talk", "1") +
                                       page("10", "Empty", "{{only|a template}}") + kEnd);
  play(job_of(folder, "wikipedia", {"a.xml"}));
  const std::vector<std::string> texts = texts_of(documents(folder));
  REQUIRE(texts.size() == 1);
  const nlohmann::json article = nlohmann::json::parse(documents(folder));
  CHECK(article["id"] == "7");
  CHECK(article["url"] == "https://de.wiki.example/wiki?curid=7");
  CHECK(article["title"] == "A & \"B\"");
  CHECK(texts[0] == "x y\n\nH\n\nz\n\\");
  const nlohmann::json removed = report(folder)["removed"];
  CHECK(removed["redirect"]["examples"][0]["text"] == "R");
  CHECK(removed["other_namespace"]["examples"][0]["text"] == "Diskussion:A");
  CHECK(removed["no_text"]["examples"][0]["text"] == "Empty");
}

TEST_CASE("wikipedia: other steps read its documents", "[clean][wikipedia]") {
  const ShardFolder folder;
  write_file(folder.file("a.xml"), dump(20));
  play(job_of(folder, "wikipedia", {"a.xml"}));
  std::filesystem::rename(folder.file("out"), folder.file("articles"));
  CHECK(play(job_of(folder, "urls", {"articles"})).provenance["documents"]["kept"] == 16);
}

TEST_CASE("wikipedia: pages without ends do not make passes over the file", "[clean][wikipedia]") {
  const ShardFolder folder;
  std::string xml = kHead;
  for (int i = 0; i < 200; ++i) xml += "<page>" + std::string(100000, 'a') + "\n";
  write_file(folder.file("a.xml"), xml + page("3", "C", "good") + kEnd);
  StepJob job = job_of(folder, "wikipedia", {"a.xml"});
  job.block_bytes = 1 << 20;
  job.longest = 1 << 16;
  job.skip_bad = true;
  const double before = bytes_read();
  const StepResult result = play(job, 2);
  CHECK(bytes_read() - before < 6 * static_cast<double>(xml.size()));
  CHECK(result.provenance["documents"]["bad"] >= 15);
  CHECK(texts_of(documents(folder)).size() <= 1);
}

TEST_CASE("wikipedia: damaged dumps are refused with their place", "[clean][wikipedia][fault-141]") {
  const ShardFolder folder;
  StepJob job = job_of(folder, "wikipedia", {"a.xml"});
  const auto refused = [&](const std::string& xml, const std::vector<std::string>& parts) {
    write_file(folder.file("a.xml"), xml);
    require_clean_error(folder, ErrorKind::data, parts, [&] { play(job, 2); });
  };
  const std::string good = dump(40);
  refused(json_line("no dump"), {"a.xml", "no <siteinfo>"});
  refused(good.substr(0, good.size() - kEnd.size()), {"a.xml", "</mediawiki>", "incomplete"});
  refused(good.substr(0, good.size() / 2), {"a.xml:", "the file ends within"});
  refused(kHead + page("1", "A", "x") + page("2", "B", "a &nbsp; b") + kEnd, {"a.xml:7: the page", "entity"});
  refused(kHead + page("1", "A", "x\xFF") + kEnd, {"a.xml:5: invalid UTF-8"});
  job.longest = 2000;
  refused(kHead + page("1", "A", std::string(3000, 'a')) + kEnd, {"a.xml:3: longer than 2000 bytes"});
  job.skip_bad = true;
  write_file(folder.file("a.xml"),
             kHead + page("1", "A", std::string(3000, 'a')) + page("2", "B", "&x;") + page("3", "C", "good") + kEnd);
  const StepResult result = play(job, 2);
  CHECK(result.provenance["documents"]["bad"] == 2);
  CHECK(texts_of(documents(folder)) == std::vector<std::string>{"good"});
  job.format = "jsonl";
  require_error(ErrorKind::configuration, {"leave out --format"}, [&] { play(job); });
}
