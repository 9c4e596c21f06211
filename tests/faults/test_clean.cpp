// megatron_clean as users start it: a recipe on several ranks, killed at random moments, and its exit codes.
#include <zlib.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "faults/checks.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace fs = std::filesystem;

namespace {

Command clean(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), MEGATRON_CLEAN);
  return arguments;
}

/// Documents with URLs, some of which repeat; `thousands` of them are about 200 kB each.
std::string pages(int thousands) {
  std::string text;
  for (int i = 0; i < 1000 * thousands; ++i) {
    text += "{\"url\": \"http://site" + std::to_string(i % 7919) + ".example/" + (i % 11 == 0 ? "a.png" : "page") +
            "\", \"text\": \"" + std::string(static_cast<std::size_t>(i % 300), 'a') + "  page " + std::to_string(i) +
            "\"}\n";
  }
  return text;
}

void write_gzip(const std::string& path, const std::string& text) {
  gzFile file = ::gzopen(path.c_str(), "wb");
  REQUIRE(::gzwrite(file, text.data(), static_cast<unsigned>(text.size())) == static_cast<int>(text.size()));
  REQUIRE(::gzclose(file) == Z_OK);
}

/// A recipe of four steps, on pages that lie in the folder.
std::string write_recipe(const TemporaryFolder& folder) {
  const std::string recipe = folder.file("recipe.toml");
  write_file(recipe, "inputs = [\"" + folder.file("a.jsonl") + "\", \"" + folder.file("b.jsonl.gz") +
                         "\"]\noutput = \"" + folder.file("out") + "\"\ncompress = \"zstd\"\n" +
                         "[[step]]\nname = \"urls\"\n[[step]]\nname = \"text\"\ngopher = false\nmin_characters = 12\n"
                         "[[step]]\nname = \"shuffle\"\n[[step]]\nname = \"split\"\nparts = \"train=0.9,test=0.1\"\n");
  return recipe;
}

}  // namespace

TEST_CASE("clean: a recipe makes the same files on 1, 2, 3 and 8 ranks", "[fault-140]") {
  const TemporaryFolder folder;
  write_file(folder.file("a.jsonl"), pages(10));
  write_gzip(folder.file("b.jsonl.gz"), pages(4));
  const std::string recipe = write_recipe(folder);
  std::map<std::string, std::string> expected;
  for (const int ranks : {0, 2, 3, 8}) {
    expect(launched(ranks, clean({"run", recipe, "--block-bytes", std::to_string(100000 + 7777 * ranks)})), 0,
           {"urls: 14000 documents read", "removed: extension", "duplicate", "changed: white_space", "split"});
    const std::map<std::string, std::string> made = all_files(folder.file("out"));
    if (expected.empty()) expected = made;
    CHECK((made == expected));
    fs::remove_all(folder.file("out"));
  }
  CHECK(expected.size() == 4);
}

TEST_CASE("clean: kill -9 at any moment, then the same files", "[fault-140]") {
  const TemporaryFolder folder;
  write_file(folder.file("a.jsonl"), pages(30));
  write_gzip(folder.file("b.jsonl.gz"), pages(4));
  const Command command = launched(2, clean({"run", write_recipe(folder), "--block-bytes", "200000"}));
  const Finished straight = expect(command, 0);
  const std::map<std::string, std::string> expected = all_files(folder.file("out"));
  fs::remove_all(folder.file("out"));
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 6; ++round) {
    Process job(command);
    pause_milliseconds(static_cast<int>(random() % static_cast<unsigned>(1000 * straight.seconds + 1)));
    for (const pid_t process : job.children("megatron_clean")) ::kill(process, SIGKILL);
    job.wait();
    if (round % 3 < 2) continue;  // killed twice or more before it may finish
    expect(command, 0);
    CHECK((all_files(folder.file("out")) == expected));
    CHECK_FALSE(fs::exists(folder.file("out.steps")));
    fs::remove_all(folder.file("out"));
  }
}

TEST_CASE("clean: what is wrong has its exit code, and nothing is written", "[fault-141]") {
  const TemporaryFolder folder;
  const std::string text = folder.file("a.jsonl"), out = folder.file("out");
  write_file(text, pages(1) + "{\"text\": 5}\n" + "{\"text\": \"b\xFF\"}\n");
  const auto text_step = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"text", "--input", text, "--output", out, "--gopher", "false"});
    return clean(more);
  };
  require_refused(run_command(launched(3, text_step({}))), 3, {"a.jsonl:1001: ", "\"text\" is not a string"});
  require_refused(run_command(clean({"text", "--input", folder.file("absent"), "--output", out})), 3, {"absent"});
  require_refused(run_command(clean({"text", "--input", text + "/x.jsonl", "--output", out})), 3, {"Not a directory"});
  require_refused(run_command(launched(2, clean({"run", folder.file("absent")}))), 2, {"absent"});
  require_refused(run_command(clean({"tex"})), 2, {"did you mean 'text'"});
  require_refused(run_command(clean({})), 2, {"--help"});
  require_refused(run_command(text_step({"--min-character", "3"})), 2, {"--min-characters"});
  require_refused(run_command(text_step({"--min-characters", "x"})), 2,
                  {"min_characters: 'x' should be a number of 0 or more"});
  require_refused(run_command(text_step({"--compress", "rar"})), 2, {"none gzip zstd"});
  require_refused(run_command(clean({"text", "--input", text, "--output", "/proc/nowhere/out"})), 7, {"/proc/nowhere"});
  write_file(folder.file("recipe.toml"), "inputs = \"a\"\noutput = \"b\"\n[[step]]\nname = \"texts\"\n");
  require_refused(run_command(clean({"run", folder.file("recipe.toml")})), 2, {"recipe.toml:3:1: error: ", "'text'"});
  CHECK_FALSE(fs::exists(out));
  expect(text_step({"--skip-bad"}), 0, {"2 bad documents left out", "1000 kept"});
  expect(text_step({"--skip-bad"}), 0, {"it was there already"});
  require_refused(run_command(text_step({"--skip-bad", "--min-characters", "100"})), 2, {"--overwrite"});
  expect(text_step({"--skip-bad", "--min-characters", "100", "--overwrite"}), 0, {"removed: min_characters"});
  const auto tasks = [&](const std::string& file) {
    return clean({"decontaminate", "--input", text, "--output", folder.file("cut"), "--tasks", file});
  };
  require_refused(run_command(tasks(folder.file("absent.jsonl"))), 3, {"absent.jsonl"});
  require_refused(run_command(clean({"merge", "--input", folder.file("recipe"), "--output", out})), 3, {"recipe"});
  write_file(folder.file("cut.gz"), "\x1f\x8b\x08");
  require_refused(run_command(clean({"merge", "--format", "jsonl", "--input", folder.file("cut.gz"), "--output", out})),
                  3, {"cut.gz: damaged after byte 0"});
  const std::string cut_twice = folder.file("cut2.gz");  // Damaged files: the first one is told, by one rank.
  write_file(cut_twice, "\x1f\x8b\x08");
  const Finished damaged = run_command(launched(
      3, clean({"merge", "--format", "jsonl", "--output", out, "--input", text, folder.file("cut.gz"), cut_twice})));
  require_refused(damaged, 3, {folder.file("cut.gz") + ": damaged after byte 0"});
  CHECK(damaged.err.find("damaged") == damaged.err.rfind("damaged"));
  CHECK_FALSE(mentions(damaged.err, "rank "));
  write_file(folder.file("pages.jsonl"), "PAR1");
  require_refused(run_command(launched(2, clean({"merge", "--input", folder.file("pages.jsonl"), "--output", out}))), 3,
                  {"pages.jsonl: it is Parquet", "python3 -c", "> pages.jsonl.jsonl"});
  require_refused(run_command(clean({"merge", "--input", folder.file("recipe.toml"), "--output", out})), 2,
                  {"--format jsonl or --format list"});
  expect(clean({"--help"}), 0, {"urls", "shuffle", "run"});
  expect(clean({"urls", "--help"}), 0, {"--min-characters", "default 9", "--compress"});
  const std::regex option("  --[a-z0-9-]+( [^ ]+)?( \\(=[^ ]*\\))?(  +[^ -].*)?");  // for help2man and completion
  for (const char* step : {"urls", "text", "duplicates", "decontaminate", "split", "run"}) {
    std::istringstream help(expect(clean({step, "--help"}), 0).out);
    for (std::string line; std::getline(help, line);) {
      CAPTURE(line);
      CHECK((!line.starts_with("  --") || std::regex_match(line, option)));
    }
  }
  const std::string page = folder.file("page.html");
  expect(clean({"report", out, "--output", page}), 0, {"page.html"});
  CHECK(mentions(contents_of(page), "removed by min_characters"));
  CHECK(mentions(contents_of(page), "Lengths of the documents"));
  require_refused(run_command(clean({"report", folder.path()})), 3, {"holds no result"});
  require_refused(run_command(clean({"report"})), 2, {"report FOLDER"});
  // A folder of results is read without what lies in it about them.
  expect({preprocess_program(), "--input", out, "--output", folder.file("set")}, 0, {"documents"});
}

TEST_CASE("clean: duplicates and tasks' texts leave on 1, 2, 3, 8 ranks", "[fault-140]") {
  const TemporaryFolder folder;
  // Sentences of ten words that no other document has.
  const auto page = [](int number) {
    std::string text;
    for (int word = 0; word < 100; ++word) {
      const auto letters = static_cast<unsigned>(number * 100 + word) * 2654435761u;
      for (int i = 0; i < 7; ++i) text += static_cast<char>('a' + (letters >> 4 * i) % 16);
      text += word % 10 == 9 ? ". " : " ";
    }
    return text;
  };
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += "{\"text\": \"" + page(i % 1900) + "\"}\n";
  const std::size_t half = lines.find('\n', lines.size() / 2) + 1;
  write_file(folder.file("a.jsonl"), lines.substr(0, half));
  write_gzip(folder.file("b.jsonl.gz"), lines.substr(half));
  write_file(folder.file("task.jsonl"), "{\"question\": \"" + page(77).substr(400, 160) + "\"}\n");
  const std::string recipe = folder.file("recipe.toml");
  write_file(recipe, "inputs = [\"" + folder.file("a.jsonl") + "\", \"" + folder.file("b.jsonl.gz") +
                         "\"]\noutput = \"" + folder.file("out") +
                         "\"\n[[step]]\nname = \"duplicates\"\n[[step]]\nname = \"decontaminate\"\ntasks = \"" +
                         folder.file("task.jsonl") + "\"\naction = \"drop\"\n");
  std::map<std::string, std::string> expected;
  for (const int ranks : {0, 2, 3, 8}) {
    const Finished job =
        expect(launched(ranks, clean({"run", recipe, "--block-bytes", std::to_string(100000 + 7777 * ranks)})), 0,
               {"2000 documents read, 1900 kept", "removed: duplicate 100", "1899 kept", "removed: contaminated 1"});
    CHECK(mentions(job.err, "16 bands of 8 hashes"));
    CHECK(mentions(job.err, "scratch files"));
    const std::map<std::string, std::string> made = all_files(folder.file("out"));
    if (expected.empty()) expected = made;
    CHECK((made == expected));
    fs::remove_all(folder.file("out"));
  }
  CHECK(expected.size() == 3);
}

TEST_CASE("clean: shards, a run and its page say what made their text", "[fault-140]") {
  const TemporaryFolder folder;
  write_file(folder.file("a.jsonl"), pages(1));
  const std::string text = folder.file("text"), unique = folder.file("unique"), set = folder.file("set");
  expect(clean({"text", "--input", folder.file("a.jsonl"), "--output", text, "--gopher", "false", "--min-characters",
                "12"}),
         0);
  expect(clean({"duplicates", "--input", text, "--output", unique}), 0);
  const auto preprocess = [&](int ranks) {
    return expect(launched(ranks, {preprocess_program(), "--input", unique, folder.file("a.jsonl"), "--output", set,
                                   "--shard-bytes", "50000", "--overwrite"}),
                  0);
  };
  CHECK_FALSE(mentions(preprocess(0).err, "another file"));
  const auto shards = [&] {
    std::map<std::string, std::string> files = all_files(folder.path());
    std::erase_if(files, [](const auto& file) { return !file.first.ends_with(".h5"); });
    return files;
  };
  const std::map<std::string, std::string> alone = shards();
  CHECK(alone.size() > 3);
  preprocess(3);
  CHECK((shards() == alone));
  const std::vector<std::string> told = {"text kept ", " of 1000, duplicates kept "};
  expect({preprocess_program(), "verify", set}, 0, {"set: cleaned: " + told[0], told[1]});

  const std::string run = folder.file("run");
  train(kOneRank, run, {"data.train=" + set, "train.steps=2"});
  CHECK(mentions(contents_of(run + "/run.log"), "cleaned   " + set + ": text kept "));
  const nlohmann::json origin = nlohmann::json::parse(contents_of(run + "/provenance.json")).at(set);
  CHECK(origin.at("steps").at(0).at(0).at("read") == 1000);
  CHECK(origin.at("steps").at(0).at(1).at("step") == "duplicates");
  const nlohmann::json& result = origin.at("provenance").at("results").at(0);
  CHECK(result == nlohmann::json::parse(contents_of(unique + "/provenance.json")));
  CHECK(origin.at("provenance").at("inputs").at(0).at("from") == 0);
  CHECK_FALSE(origin.at("provenance").at("inputs").at(1).contains("from"));
  expect({train_program(), "--report", run}, 0);
  CHECK(mentions(contents_of(run + "/report.html"), "Where the data comes from"));

  // A result that was edited is not what its provenance says.
  std::ofstream(unique + "/documents.jsonl", std::ios::app) << "{\"text\": \"one more\"}\n";
  CHECK(mentions(preprocess(2).err, "documents.jsonl is another file than megatron_clean has written"));
  CHECK_FALSE(mentions(expect({preprocess_program(), "verify", set}, 0).out, "cleaned"));
}

TEST_CASE("clean: memory does not grow with the input", "[fault-142]") {
  const TemporaryFolder folder;
  const auto mebibytes = [&](const std::string& step, int thousands) {
    write_file(folder.file("a.jsonl"), pages(thousands));
    return stated_mebibytes(expect(clean({step, "--input", folder.file("a.jsonl"), "--output", folder.file("out"),
                                          "--overwrite", "--block-bytes", "1000000"}),
                                   0)
                                .out);
  };
  for (const char* step : {"text", "urls", "split"}) {
    const double small = mebibytes(step, 20), large = mebibytes(step, 200);  // for 4 and 40 MB
    CAPTURE(step);
    CHECK(large < small + 10);
    CHECK(large < 96);
  }
}
