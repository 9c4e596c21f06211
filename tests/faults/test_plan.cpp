// megatron_plan: searches, one layout explained, files that it writes, and what it refuses.
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "faults/checks.h"
#include "support/catch.h"
#include "support/trace_check.h"

using nlohmann::json;

namespace {

/// A GPT of 1.3 billion parameters, without data.
const char* const kPlanInput = R"([model]
preset = "gpt3-1.3b"
vocab_size = 50257
[train]
tokens = 20_000_000_000
global_batch_size = 512
[precision]
compute = "bf16"
[data]
train = "none"
)";

struct PlanFolder : TemporaryFolder {
  PlanFolder() { write_file(file("input.toml"), kPlanInput); }

  Finished plan(std::vector<std::string> options, const std::string& input = "input.toml") const {
    options.insert(options.begin(), {MEGATRON_PLAN, input});
    return run_command(options, 60, path());
  }
};

/// Columns of a row of the table: "1", "t8", "p1", "d2", "4", "31.5", "GiB", ...
std::vector<std::vector<std::string>> rows_of(const std::string& table) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> row;
    for (std::string word; words >> word;) row.push_back(word);
    const bool numbered = row.size() > 4 && row[0] == std::to_string(rows.size() + 1) && row[1].starts_with("t");
    if (numbered) rows.push_back(row);
  }
  return rows;
}

}  // namespace

TEST_CASE("megatron_plan: ten layouts with the fastest first as table and JSON") {
  const PlanFolder place;
  const Finished found =
      place.plan({"--hardware", "a100-sxm", "--ranks", "64", "--output", "all.json", "--write", "best.toml"});
  INFO(found.out << found.err);
  REQUIRE(found.code == 0);
  CHECK(found.err.empty());
  const auto rows = rows_of(found.out);
  REQUIRE(rows.size() == 10);
  const json all = json::parse(contents_of(place.file("all.json")));
  CHECK(all.at("ranks") == 64);
  const json& layouts = all.at("layouts");
  REQUIRE(layouts.size() == 10);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i, found.out);
    const json& layout = layouts[i];
    CHECK(rows[i][1] == "t" + std::to_string(layout.at("tensor").get<int>()));
    CHECK(rows[i][2].starts_with("p" + std::to_string(layout.at("pipeline").get<int>())));
    CHECK(rows[i][3] == "d" + std::to_string(layout.at("data").get<int>()));
    CHECK(layout.at("tensor").get<int>() * layout.at("pipeline").get<int>() * layout.at("data").get<int>() == 64);
    CHECK(layout.at("memory_bytes").get<double>() < 80 * 1073741824.0);
    if (i > 0) CHECK(layout.at("step_seconds").get<double>() >= layouts[i - 1].at("step_seconds").get<double>());
    const double unit = rows[i][8] == "s" ? 1 : 1e-3;
    CHECK(rows[i][4] == std::to_string(layout.at("micro_batch_size").get<int>()));
    CHECK(rows[i][6] == "GiB");
    CHECK(std::stod(rows[i][5]) == Approx(layout.at("memory_bytes").get<double>() / (1 << 30)).epsilon(0.01));
    CHECK(std::stod(rows[i][7]) * unit == Approx(layout.at("step_seconds").get<double>()).epsilon(0.01));
    CHECK(std::stod(rows[i][9]) == Approx(layout.at("tokens_per_second").get<double>()).epsilon(0.001));
    CHECK(std::stod(rows[i][10]) == Approx(100 * layout.at("model_flops_share").get<double>()).margin(0.06));
  }
  CHECK(mentions(found.out, "written   best.toml"));
  CHECK(mentions(found.out, "written   all.json"));
  const std::vector<std::string> write = {"--hardware", "a100-sxm", "--ranks", "64", "--write", "best.toml"};
  require_refused(place.plan(write), 2, {"--write best.toml: there is such a file", "--force"});

  // The file that it writes is the first layout, trains on these ranks and no others, and is planned by the same
  // memory.
  const Command dry = {train_program(), "best.toml", "--dry-run", "--ranks"};
  Command fits = dry, does_not = dry;
  fits.emplace_back("64");
  does_not.emplace_back("63");
  const Finished planned = run_command(fits, 60, place.path());
  INFO(planned.out << planned.err);
  REQUIRE(planned.code == 0);
  CHECK(run_command(does_not, 60, place.path()).code == 2);
  const Finished again =
      place.plan({"--hardware", "a100-sxm", "--ranks", "64", "--explain", "--output", "one.json"}, "best.toml");
  REQUIRE(again.code == 0);
  const json one = json::parse(contents_of(place.file("one.json")));
  REQUIRE(one.at("layouts").size() == 1);
  CHECK(one.at("layouts")[0] == layouts[0]);
}

TEST_CASE("--fit: the cheapest way under a limit, with the options that take it") {
  const PlanFolder place;
  const std::vector<std::string> large = {"--ranks", "8", "--set", "train.micro_batch_size=16"};
  const auto fit = [&](Command command, const char* limit) {
    command.insert(command.end(), large.begin(), large.end());
    command.insert(command.end(), {"--fit", limit});
    return run_command(command, 120, place.path());
  };
  const Command plan = {MEGATRON_PLAN, "input.toml", "--hardware", "a100-sxm"}, train = {train_program(), "input.toml"};
  for (const Command& command : {plan, train}) {
    const Finished found = fit(command, "60GiB");
    INFO(found.out << found.err);
    REQUIRE(found.code == 0);
    CHECK(mentions(found.out, "it does NOT fit"));
    CHECK(mentions(found.out, "cheapest  "));
    CHECK(mentions(found.out, " s a step"));
    CHECK(mentions(found.out, "options   --set '"));
    require_refused(fit(command, "1MiB"), 2, {"nothing fits into 1.0 MiB per rank", "the smallest needs"});
    require_refused(fit(command, "1MB"), 2, {"give one such as 16GiB"});
  }
  require_refused(place.plan({"--hardware", "a100-sxm", "--ranks", "8", "--fit", "60GiB", "--explain"}), 2,
                  {"--explain, --write and --output do not go with it"});
}

TEST_CASE("megatron_plan: --explain says where the time of the file's layout goes") {
  const PlanFolder place;
  const Finished one = place.plan({"--hardware", "h100-sxm", "--ranks", "16", "--explain", "--set", "parallel.tensor=4",
                                   "--set", "parallel.pipeline=2"});
  INFO(one.out << one.err);
  REQUIRE(one.code == 0);
  CHECK(mentions(one.out, "t4 p2 d2"));
  CHECK(rows_of(one.out).empty());
  CHECK(mentions(one.out, "bubble"));
  require_refused(place.plan({"--hardware", "h100-sxm", "--ranks", "16", "--explain", "--write", "x.toml"}), 2,
                  {"nothing to --write"});
  CHECK_FALSE(std::filesystem::exists(place.file("x.toml")));
}

TEST_CASE("megatron_plan: --trace writes the predicted step with its messages") {
  const PlanFolder place;
  struct Case {
    std::string schedule;
    int chunks;
  };
  for (const Case& one : {Case{"1f1b", 1}, Case{"interleaved", 2}, Case{"zero_bubble", 1}}) {
    CAPTURE(one.schedule);
    const Finished found = place.plan({"--hardware", "h100-sxm",
                                       "--ranks",    "16",
                                       "--explain",  "--trace",
                                       "step.json",  "--output",
                                       "one.json",   "--force",
                                       "--set",      "parallel.tensor=4",
                                       "--set",      "parallel.pipeline=4",
                                       "--set",      "parallel.schedule=" + one.schedule,
                                       "--set",      "parallel.virtual_stages=" + std::to_string(one.chunks),
                                       "--set",      "train.micro_batch_size=8"});
    INFO(found.out << found.err);
    REQUIRE(found.code == 0);
    CHECK(mentions(found.out, "trace     step.json"));
    const auto trace = megatron::test::TraceCheck::of(contents_of(place.file("step.json")));
    const std::int64_t micro_batches = 512 / 8;
    REQUIRE(trace.processes.size() == 4);
    const double step = json::parse(contents_of(place.file("one.json"))).at("layouts")[0].at("step_seconds");
    CHECK(trace.facts.at("step_seconds") == step);
    for (int stage = 0; stage < 4; ++stage) {
      CHECK(trace.processes.at(stage) == "stage " + std::to_string(stage) + ", predicted");
      CHECK(trace.count(stage, "forward") == micro_batches * one.chunks);
      CHECK(trace.count(stage, "backward") == micro_batches * one.chunks);
      CHECK(trace.count(stage, "weight gradients") == (one.schedule == "zero_bubble" ? micro_batches : 0));
      CHECK(1e-9 * static_cast<double>(trace.slices.at(stage).back().end) == Approx(step));
    }
    CHECK(static_cast<std::int64_t>(trace.arrows.size()) == 2 * micro_batches * (4 * one.chunks - 1));
    CHECK(trace.arrives_in == std::set<std::string>{"forward", "backward"});
  }
}

TEST_CASE("megatron_plan: each mistake has one error and the documented exit code", "[fault-91]") {
  const PlanFolder place;
  struct Row {
    std::vector<std::string> options;
    std::string input;
    int code;
    std::vector<std::string> words;
  };
  const std::vector<std::string> machine = {"--hardware", "a100-sxm", "--ranks"};
  const auto on = [&](std::vector<std::string> more) {
    more.insert(more.begin(), machine.begin(), machine.end());
    return more;
  };
  const Row rows[] = {
      {{"--hardware", "a1000", "--ranks", "8"}, "input.toml", 2, {"a1000", "a100-sxm, h100-sxm"}},
      {{"--hardware", "h100", "--ranks", "8"}, "input.toml", 2, {"did you mean h100-sxm?"}},
      {{"--hardware", "missing.toml", "--ranks", "8"}, "input.toml", 2, {"missing.toml"}},
      {{"--hardware", "a100-sxm"}, "input.toml", 2, {"--ranks"}},
      {{"--ranks", "8"}, "input.toml", 2, {"--hardware"}},
      {on({"0"}), "input.toml", 2, {"--ranks"}},
      {on({"8", "--results", "0"}), "input.toml", 2, {"--results"}},
      {on({"8"}), "missing.toml", 2, {"missing.toml"}},
      {on({"8"}), "gpt3-175", 2, {"gpt3-175: there is no such file and no such preset", "did you mean gpt3-175b?"}},
      // 512 samples cannot be shared out to 7 replicas, and neither 16 heads nor 24 layers are cut by 7.
      {on({"7"}), "input.toml", 2, {"no layout of 7 ranks is allowed"}},
      {on({"12", "--explain", "--set", "parallel.tensor=8"}), "input.toml", 2, {"12 ranks cannot hold", "8 or 16"}},
      {on({"8", "--set", "model.layers=10000"}), "input.toml", 2, {"GiB"}},
      {on({"8", "--set", "model.layrs=2"}), "input.toml", 2, {"did you mean 'layers'"}},
      {on({"8", "--write", "no/best.toml"}), "input.toml", 7, {"no/best.toml"}},
      {on({"8", "--trace", "step.json"}), "input.toml", 2, {"--trace step.json", "give --explain"}},
      {on({"8", "--explain", "--trace", "no/step.json"}), "input.toml", 7, {"no/step.json"}},
      {on({"8", "--write", "input.toml"}), "input.toml", 2, {"--write input.toml is a file that this command reads"}},
      {on({"8", "--output", "input.toml", "--force"}),
       "input.toml",
       2,
       {"input.toml is a file that this command reads"}},
      {on({"8", "--force"}), "input.toml", 2, {"--force is for the files of --write"}},
      {on({"8", "--write", "x.toml", "--output", "./x.toml"}),
       "input.toml",
       2,
       {"--output ./x.toml: another argument"}},
      {on({"8", "--output", "."}), "input.toml", 7, {"--output . is a folder"}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.options, row.input);
    const Finished refused = place.plan(row.options, row.input);
    INFO(refused.out << refused.err);
    require_refused(refused, row.code, row.words);
  }
  CHECK(place.files() == std::vector<std::string>{"input.toml"});
  // A link is not followed, nor replaced, and a file is only by force.
  std::filesystem::create_symlink("input.toml", place.file("link.json"));
  require_refused(place.plan(on({"8", "--output", "link.json", "--force"})), 7, {"link.json is a symbolic link"});
  require_refused(place.plan(on({"8", "--explain", "--trace", "link.json", "--force"})), 7, {"is a symbolic link"});
  std::ofstream(place.file("all.json")) << "a user's";
  require_refused(place.plan(on({"8", "--output", "all.json"})), 2, {"all.json: there is such a file", "--force"});
  CHECK(contents_of(place.file("all.json")) == "a user's");
  CHECK(place.plan(on({"8", "--output", "all.json", "--force"})).code == 0);
  CHECK(json::parse(contents_of(place.file("all.json"))).at("ranks") == 8);
}

TEST_CASE("megatron_bench --hardware: megatron_plan reads its file") {
  const PlanFolder place;
  const std::vector<std::string> measure = {MEGATRON_BENCH, "--hardware", "here.toml", "--quick", "--device", "cpu"};
  const auto bench = [&](std::vector<std::string> more) {
    more.insert(more.begin(), measure.begin(), measure.end());
    return run_command(more, 60, place.path());
  };
  const Finished measured = bench({});
  INFO(measured.out << measured.err);
  REQUIRE(measured.code == 0);
  CHECK(measured.out.find("written   here.toml") != std::string::npos);
  const std::string first = contents_of(place.file("here.toml"));

  const std::vector<std::string> tiny = {"--set", "model.preset=gpt2-124m",   "--set", "precision.compute=fp32",
                                         "--set", "train.global_batch_size=1"};
  const auto plan = [&](std::vector<std::string> more) {
    more.insert(more.end(), tiny.begin(), tiny.end());
    return place.plan(more);
  };
  const Finished planned = plan({"--hardware", "./here.toml", "--ranks", "1", "--explain"});
  INFO(planned.out << planned.err);
  CHECK(planned.code == 0);
  CHECK(planned.out.find("efficiencies measured") != std::string::npos);
  require_refused(plan({"--hardware", "./here.toml", "--ranks", "2"}), 2, {"of one node with 1 rank", "[network]"});
  require_refused(plan({"--hardware", "./here.toml", "--ranks", "1", "--set", "run.threads=2"}), 2,
                  {"measured with 1 thread per rank", "run.threads = 2"});

  require_refused(bench({}), 2, {"here.toml", "--force"});
  CHECK(contents_of(place.file("here.toml")) == first);
  CHECK(bench({"--force"}).code == 0);
  CHECK(contents_of(place.file("here.toml")) != first);
  require_refused(bench({"--all"}), 2, {"--hardware", "--all"});
  require_refused(run_command({MEGATRON_BENCH, "--all", "--force"}, 60, place.path()), 2, {"--force", "--hardware"});
  require_refused(bench({"--threads", "1000", "--force"}), 2, {"1000 threads", "cores"});
  require_refused(
      run_command({MEGATRON_BENCH, "--hardware", "no/here.toml", "--quick", "--device", "cpu"}, 60, place.path()), 7,
      {"no/here.toml"});
}

TEST_CASE("megatron_plan: a trillion parameters on 3072 ranks take seconds") {
  const auto seconds_of_cores = [] {  // used by all programs that have been waited for
    struct rusage used {};
    ::getrusage(RUSAGE_CHILDREN, &used);
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
  };
  const PlanFolder place;
  const double before = seconds_of_cores();
  const Finished found =
      place.plan({"--hardware", "a100-sxm", "--ranks", "3072"}, source_folder() + "/inputs/scaling_1t.toml");
  INFO(found.out << found.err);
  REQUIRE(found.code == 0);
  CHECK(rows_of(found.out).size() == 10);
  CHECK(mentions(found.out, "failure   costs at most "));
  CHECK(mentions(found.out, "disk      a checkpoint is 1"));
  CHECK(mentions(found.out, "; a save takes about 3"));  // hours, of 12 TB at 1 GB/s
  CHECK(seconds_of_cores() - before < 10);               // five on a slow core: docs/planner.md
}
