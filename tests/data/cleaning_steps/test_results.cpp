// Results of steps: published whole or not at all, recognised when they are there already, recipes that were killed.
#include "data/cleaning_steps/clean_support.h"
#include "support/file_size_limit.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// A recipe of three steps for out/, with a.jsonl as its input.
Recipe three_steps(const ShardFolder& folder, const std::string& fewest = "3") {
  Recipe recipe = parse_recipe("inputs = \"" + folder.file("a.jsonl") + "\"\noutput = \"" + folder.file("out") +
                                   "\"\n[[step]]\nname = \"text\"\ngopher = false\nmin_characters = " + fewest +
                                   "\n[[step]]\nname = \"shuffle\"\nseed = 3\n[[step]]\nname = \"merge\"\n",
                               "r.toml");
  for (StepJob& job : recipe.steps) {
    job.program = "test";
    job.block_bytes = 4096;
  }
  return recipe;
}

std::string some_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += json_line(std::string(static_cast<std::size_t>(i % 9), 'a') + std::to_string(i));
  return text;
}

/// The steps that were played, each with whether its result was there already.
std::vector<std::pair<std::string, bool>> play_all(const Recipe& recipe, int ranks = 1) {
  std::vector<std::pair<std::string, bool>> steps;
  run_as_threads(ranks, [&](Communicator& world) {
    const RecipeListener listener{.begin = {},
                                  .end =
                                      [&](const StepJob& job, const StepResult& result) {
                                        if (world.rank() == 0) steps.emplace_back(job.step->name, result.was_finished);
                                      },
                                  .progress = {}};
    play_recipe(world, recipe, listener);
  });
  return steps;
}

using Steps = std::vector<std::pair<std::string, bool>>;

struct Killed {};

/// Plays a recipe on two ranks that end without a word when a step of this name begins or has ended.
void play_until(const Recipe& recipe, const std::string& step, bool ended) {
  try {
    run_as_threads(2, [&](Communicator& world) {
      const auto kill = [&](const StepJob& job) {
        if (job.step->name == step) throw Killed{};
      };
      const RecipeListener listener{.begin =
                                        [&](const StepJob& job) {
                                          if (!ended) kill(job);
                                        },
                                    .end =
                                        [&](const StepJob& job, const StepResult&) {
                                          if (ended) kill(job);
                                        },
                                    .progress = {}};
      play_recipe(world, recipe, listener);
    });
    FAIL("it was not killed");
  } catch (const Killed&) {
  }
}

}  // namespace

TEST_CASE("clean: a result that is there already is recognised", "[clean]") {
  const ShardFolder folder;
  write_file(folder.file("a.jsonl"), some_lines(300));
  StepJob job = job_of(folder, "text", {"a.jsonl"}, {{"gopher", "false"}});
  CHECK_FALSE(play(job).was_finished);
  const auto made = files_in(folder.file("out"));
  CHECK(play(job, 2).was_finished);
  CHECK((files_in(folder.file("out")) == made));
  SECTION("unless it is damaged: then it is made again") {
    write_file(folder.file("out/documents.jsonl"), made.at("documents.jsonl") + "\n");
    CHECK_FALSE(play(job).was_finished);
    CHECK((files_in(folder.file("out")) == made));
  }
  SECTION("and another one is not replaced") {
    job.keys.set("min_characters", "4");
    require_clean_error(folder, ErrorKind::configuration, {"out already holds another result", "--overwrite"},
                        [&] { play(job); });
    job.overwrite = true;
    job.packing = Packing::gzip;
    CHECK_FALSE(play(job).was_finished);
    CHECK(files_in(folder.file("out")).count("documents.jsonl") == 0);
    CHECK(files_in(folder.file("out")).count("documents.jsonl.gz") == 1);
  }
  SECTION("the input has changed") {
    write_file(folder.file("a.jsonl"), some_lines(301));
    require_clean_error(folder, ErrorKind::configuration, {"another result"}, [&] { play(job); });
  }
}

TEST_CASE("clean: files of others in the folder are not replaced", "[clean]") {
  const ShardFolder folder;
  write_file(folder.file("a.jsonl"), some_lines(3));
  std::filesystem::create_directories(folder.file("out"));
  write_file(folder.file("out/documents.jsonl"), "mine");
  write_file(folder.file("out/documents.jsonl.00000000.tmp"), "of a killed command");
  const StepJob job = job_of(folder, "merge", {"a.jsonl"});
  require_error(ErrorKind::configuration, {"out/documents.jsonl exists already"}, [&] { play(job); });
  CHECK((files_in(folder.file("out")) == std::map<std::string, std::string>{{"documents.jsonl", "mine"}}));
  StepJob inside = job;
  inside.output = folder.path();
  require_clean_error(folder, ErrorKind::configuration, {"a.jsonl lies in the output folder"}, [&] { play(inside); });
}

TEST_CASE("clean: a full disk leaves nothing behind", "[clean][fault-141]") {
  const ShardFolder folder;
  write_file(folder.file("a.jsonl"), some_lines(3000));
  for (const char* step : {"merge", "shuffle"}) {
    StepJob job = job_of(folder, step, {"a.jsonl"});
    require_clean_error(folder, ErrorKind::filesystem, {"out/"}, [&] {
      const FileSizeLimit limit(20000);
      play(job, 2);
    });
    CHECK_FALSE(std::filesystem::exists(folder.file("out")));
  }
}

TEST_CASE("clean: a recipe plays its steps, and knows that it has", "[recipe]") {
  const ShardFolder folder;
  write_file(folder.file("a.jsonl"), some_lines(500));
  CHECK(play_all(three_steps(folder), 2) == Steps{{"text", false}, {"shuffle", false}, {"merge", false}});
  const auto made = files_in(folder.file("out"));
  CHECK(made.size() == 3);
  CHECK_FALSE(std::filesystem::exists(folder.file("out.steps")));
  CHECK(play_all(three_steps(folder)).empty());
  const nlohmann::json provenance = nlohmann::json::parse(made.at("provenance.json"));
  CHECK(provenance["inputs"][0]["from"]["step"] == "shuffle");
  CHECK(provenance["inputs"][0]["from"]["inputs"][0]["from"]["keys"]["min_characters"] == "3");
  require_clean_error(folder, ErrorKind::configuration, {"another result"},
                      [&] { play_all(three_steps(folder, "4")); });
}

TEST_CASE("clean: a recipe killed between any steps makes the same result", "[recipe][fault-140]") {
  const ShardFolder folder;
  write_file(folder.file("a.jsonl"), some_lines(500));
  play_all(three_steps(folder));
  const auto expected = files_in(folder.file("out"));
  for (const char* step : {"text", "shuffle", "merge"}) {
    for (const bool ended : {false, true}) {
      std::filesystem::remove_all(folder.file("out"));
      play_until(three_steps(folder), step, ended);
      const bool finished = std::string(step) == "merge" && ended;  // only the results between the steps are left
      if (!finished) play_until(three_steps(folder), step, ended);
      const Steps rest = play_all(three_steps(folder), 3);
      for (const auto& [name, was_finished] : rest) {
        const bool before = (std::string(step) == "shuffle" && name == "text") || std::string(step) == "merge";
        CHECK(was_finished == (before && name != "merge" ? true : name == step && ended));
      }
      CHECK((files_in(folder.file("out")) == expected));
      CHECK_FALSE(std::filesystem::exists(folder.file("out.steps")));
    }
  }
}

TEST_CASE("clean: a report has those of the steps before it", "[recipe]") {
  const ShardFolder folder;
  write_file(folder.file("a.jsonl"), some_lines(100));
  play_all(three_steps(folder), 2);
  const nlohmann::json last = report(folder);
  CHECK(last["step"] == "merge");
  REQUIRE(last["earlier"].size() == 1);
  CHECK(last["earlier"][0]["step"] == "shuffle");
  REQUIRE(last["earlier"][0]["earlier"].size() == 1);
  CHECK(last["earlier"][0]["earlier"][0]["removed"]["min_characters"]["documents"] > 0);
}

TEST_CASE("clean: results of steps that are not the recipe's are not used", "[recipe]") {
  const ShardFolder folder;
  write_file(folder.file("a.jsonl"), some_lines(500));
  play_until(three_steps(folder, "4"), "merge", false);
  CHECK(play_all(three_steps(folder)) == Steps{{"text", false}, {"shuffle", false}, {"merge", false}});
  std::filesystem::remove_all(folder.file("out"));
  play_until(three_steps(folder), "merge", false);
  write_file(folder.file("a.jsonl"), some_lines(499));
  CHECK(play_all(three_steps(folder))[0] == std::pair<std::string, bool>{"text", false});
  std::filesystem::remove_all(folder.file("out"));
  play_until(three_steps(folder), "merge", false);
  std::string text = contents_of(folder.file("out.steps/02-shuffle/documents.jsonl"));
  text[10] = 'b';
  write_file(folder.file("out.steps/02-shuffle/documents.jsonl"), text);
  CHECK(play_all(three_steps(folder)) == Steps{{"text", true}, {"shuffle", false}, {"merge", false}});
}

TEST_CASE("clean: all ranks play rank 0's recipe, by the same rules", "[recipe]") {
  const ShardFolder folder;
  write_file(folder.file("r.toml"), "inputs = \"a\"\noutput = \"b\"\n[[step]]\nname = \"merge\"\n");
  const auto read = [&](const std::string& of_first, const std::string& of_others) {
    run_as_threads(3, [&](Communicator& world) {
      const Recipe recipe = read_recipe(world, folder.file(world.rank() == 0 ? of_first : of_others));
      CHECK(recipe.steps.back().output == "b");
    });
  };
  read("r.toml", "absent");
  require_error(ErrorKind::configuration, {"absent"}, [&] { read("absent", "r.toml"); });
  write_file(folder.file("a.txt"), "http://a.example/page\n");
  for (const char* rank : {"0", "1"}) write_file(folder.file(std::string("domains") + rank), rank);
  require_clean_error(folder, ErrorKind::data, {"a key's file", "rank 0's"}, [&] {
    run_as_threads(2, [&](Communicator& world) {
      const std::string domains = folder.file("domains" + std::to_string(world.rank()));
      play_step(world, job_of(folder, "urls", {"a.txt"}, {{"domains", domains}}));
    });
  });
}

TEST_CASE("clean: a recipe does not read its own results", "[recipe]") {
  const ShardFolder folder;
  for (const char* inside : {"out", "out/deep/er", "out.steps/01-text"}) {
    INFO(inside);
    std::filesystem::create_directories(folder.file(inside));
    write_file(folder.file(inside) + "/a.jsonl", some_lines(3));
    Recipe recipe = three_steps(folder);
    recipe.steps.front().inputs = {folder.file(inside)};
    require_clean_error(folder, ErrorKind::configuration, {"a.jsonl lies in ", "choose another output"},
                        [&] { play_all(recipe, 2); });
  }
}

TEST_CASE("clean: files of others next to results stay", "[recipe]") {
  const ShardFolder folder;
  write_file(folder.file("a.jsonl"), some_lines(30));
  for (const char* name : {"out/.scratch", "out/.megatron_clean.scratch", "out.steps/mine"}) {
    std::filesystem::create_directories(folder.file(name));
    write_file(folder.file(name) + "/file", "mine");
  }
  play_all(three_steps(folder));
  CHECK(files_in(folder.file("out")).size() == 4);
  CHECK(contents_of(folder.file("out/.scratch/file")) == "mine");
  CHECK((files_in(folder.file("out.steps")) == std::map<std::string, std::string>{{"mine/file", "mine"}}));
  // A folder that is not free keeps even what looks left over.
  std::filesystem::create_directories(folder.file("out/.megatron_clean.scratch"));
  write_file(folder.file("out/.megatron_clean.scratch/file"), "");
  require_clean_error(folder, ErrorKind::configuration, {"another result"},
                      [&] { play(job_of(folder, "shuffle", {"a.jsonl"})); });
}

TEST_CASE("clean: a file's name need not be UTF-8", "[clean]") {
  const ShardFolder folder;
  write_file(folder.file("a\xFF.jsonl"), some_lines(3));
  CHECK(play(job_of(folder, "merge", {"a\xFF.jsonl"})).provenance["documents"]["kept"] == 3);
  CHECK(contents_of(folder.file("out/provenance.json")).find("a\uFFFD.jsonl") != std::string::npos);
  CHECK(play(job_of(folder, "merge", {"a\xFF.jsonl"}), 2).was_finished);
}

TEST_CASE("clean: a folder that changes between hashing and reading", "[clean]") {
  const ShardFolder folder;
  for (const char* name : {"in/a.jsonl", "in/b.jsonl"}) {
    std::filesystem::create_directories(folder.file("in"));
    write_file(folder.file(name), some_lines(3));
  }
  StepJob job = job_of(folder, "merge", {"in"});
  job.input_hashes = {"0"};
  require_clean_error(folder, ErrorKind::data, {"the input folder has changed"}, [&] { play(job, 2); });
}

TEST_CASE("clean: mistakes of a recipe have their places", "[recipe]") {
  const auto refused = [](const std::string& text, const std::vector<std::string>& parts) {
    require_error(ErrorKind::configuration, parts, [&] { parse_recipe(text, "r.toml"); });
  };
  const std::string begin = "inputs = \"a\"\noutput = \"b\"\n";
  refused("inputs = [", {"r.toml:1:"});
  refused(begin, {"[[step]]"});
  refused(begin + "[[step]]\nname = \"tex\"\n", {"r.toml:3:1: error: there is no step 'tex'; did you mean 'text'?"});
  refused(begin + "[[step]]\nname = \"text\"\nmin_character = 1\nrepair = 3\n",
          {"r.toml:5:", "unknown key 'min_character'", "\nr.toml:6:10: error: repair: '3' should be true or false"});
  refused(begin + "[[step]]\nname = \"text\"\nzz = 1\naa = 2\n",
          {"r.toml:5:6: error: unknown key 'zz'\nr.toml:6:6: error: unknown key 'aa'"});  // by their places
  refused(begin + "compress = \"rar\"\n[[step]]\nname = \"text\"\n", {"compress 'rar'"});
  refused("inputs = 3\n", {"r.toml:1:10: error: inputs"});
  refused(begin + "text_kye = \"x\"\n", {"r.toml:3:12", "did you mean 'text_key'"});
  refused(std::string(100, '['), {"r.toml:1:"});
  const Recipe recipe = parse_recipe(
      "inputs = [\"a\", \"b\"]\noutput = \"c\"\ncompat = \"megatron\"\ntext_key = \"t\"\n"
      "[[step]]\nname = \"text\"\nmin_characters = 7\n",
      "r.toml");
  CHECK(recipe.steps[0].inputs == std::vector<std::string>{"a", "b"});
  CHECK(recipe.steps[0].keys.threshold("min_characters", 1) == 7);
  CHECK(recipe.steps[0].keys.threshold("min_tokens", 1) == 128);
  CHECK(recipe.steps[0].text_key == "t");
}
