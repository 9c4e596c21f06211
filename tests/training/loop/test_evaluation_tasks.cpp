// Evaluation tasks inside training: they change no bit of it, give what megatron_eval gives on the checkpoint of that
// step, take the memory that was planned, and continue with the run.
#include <map>

#include "backend/ops/backends.h"
#include "data/tokenizer_kinds/byte_tokenizer.h"
#include "distributed/comm/thread_communicator.h"
#include "inference/decoding/scorer.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "training/datasets/evaluation_tasks.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Documents of bytes and the files of three tasks: a text of some windows, texts and questions of which some are
/// longer than the context of 16.
class TaskFiles {
 public:
  TaskFiles() {
    Documents documents;
    for (int i = 0; i < 60; ++i) {
      documents.emplace_back();
      for (int j = 0; j < 10 + i; ++j) documents.back().push_back(97 + (i * 7 + j * (j % 5 + 1)) % 26);
      documents.back().push_back(256);
    }
    make_shard(folder.file("corpus"), documents, 0, 1, small_vocabulary(257));
    write_file(folder.file("wiki"), "the mill @-@ wheel stood , and the river ran on past the old stone bridge .\n");
    std::string lines;
    for (const char* text : {"ab", "the mill stood by the river", "a bc", "when it rained they ran home", "the sea"}) {
      lines += fmt::format("{{\"text\":\"{}\"}}\n", text);
    }
    write_file(folder.file("lambada"), lines);
    write_file(folder.file("choices"), R"({"context":"the mill","choices":["stood","ran by the","x"],"answer":1})"
                                       "\n"
                                       R"({"context":"","choices":["river","bc"],"answer":0})"
                                       "\n");
  }

  std::vector<EvaluationTaskConfig> tasks() const {
    return {{.name = "wiki", .task = "wikitext", .data = folder.file("wiki"), .every = 2, .stride = 5},
            {.name = "words", .task = "lambada", .data = folder.file("lambada"), .every = 3, .strict = true},
            {.name = "choices", .task = "choices", .data = folder.file("choices")}};
  }

  ShardFolder folder;
};

struct TaskLayout {
  const char* name;
  int tensor = 1, pipeline = 1, data = 1;
  void (*change)(Config&) = nullptr;
};

Config run_of(const TaskFiles& files, const TaskLayout& layout, const std::string& directory) {
  Config config = tiny_config();
  config.model.vocab_size = 0;
  config.data.train = files.folder.file("corpus");
  config.parallel.tensor = layout.tensor;
  config.parallel.pipeline = layout.pipeline;
  config.parallel.data = layout.data;
  config.train.steps = 4;
  config.train.evaluate_every = 2;
  config.train.evaluate_steps = 1;
  config.learning_rate.peak = 0.02;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep_last = 0;
  config.run.directory = files.folder.file(directory);
  if (layout.change != nullptr) layout.change(config);
  return config;
}

/// The lines of a kind without what depends on time.
std::vector<nlohmann::json> lines(const LoopResult& result, const std::string& kind) {
  std::vector<nlohmann::json> found;
  for (nlohmann::json line : result.metrics) {
    if (line.at("kind") != kind) continue;
    for (const char* key :
         {"time", "step_seconds", "tokens_per_second", "model_tflops_per_rank", "hardware_tflops_per_rank"}) {
      line.erase(key);
    }
    found.push_back(std::move(line));
  }
  return found;
}

std::vector<std::string> names_and_steps(const LoopResult& result) {
  std::vector<std::string> names;
  for (const nlohmann::json& line : lines(result, "task")) {
    names.push_back(fmt::format("{} {}", line.at("name").get<std::string>(), line.at("step").get<int>()));
  }
  return names;
}

/// As megatron_eval: a scorer on one rank, on the checkpoint of a step.
EvaluationResult by_scorer(const Config& run, const EvaluationTaskConfig& entry, std::int64_t step) {
  EvaluationResult result;
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader checkpoint =
        open_named_checkpoint(world, fmt::format("{}/checkpoints/step_{:08}", run.run.directory, step), warnings);
    Config config = config_for_scoring(checkpoint, {.micro_batch_size = 3, .precision = "checkpoint"});
    config.run.device = "cpu";
    Backend backend = make_cpu_backend();
    const ProcessGrid grid(world, grid_shape(config));
    Scorer scorer(config, grid, backend, config.model.sequence_length);
    scorer.load(checkpoint);
    const std::unique_ptr<EvaluationTask> task =
        make_evaluation_task({entry.task, entry.data, entry.stride, entry.strict}, contents_of(entry.data),
                             ByteTokenizer(), config.model.sequence_length);
    result = task->result(scorer.score(task->sequences()));
  });
  return result;
}

void all_told_nothing(const LoopResult& result) {
  for (const std::string& error : result.told) CHECK(error.empty());
}

void in_halves(Config& c) {
  c.precision.compute = "bf16";
  c.optimizer.share = "state";
}
void interleaved(Config& c) {
  c.parallel.schedule = "interleaved";
  c.parallel.virtual_stages = 2;
  c.model.layers = 6;
  c.parallel.layers_per_stage = {2, 1, 2, 1};
  c.train.micro_batch_size = 2;
}
void in_parts(Config& c) {
  c.parallel.sequence_parallel = true;
  c.parallel.schedule = "zero_bubble";
  c.recompute = {"full", 1};
  c.parallel.overlap_gradients = true;
}
void with_documents(Config& c) {
  c.data.reset_attention_mask = c.data.reset_position_ids = c.data.eod_mask_loss = true;
  c.loss.name = "key_tokens";
  c.loss.token_ids = {100};
  like_llama(c.model);
}
void over_context(Config& c) {
  c.parallel.context = 2;
}
void over_a_ring(Config& c) {
  c.parallel.context = 2;
  c.parallel.context_exchange = "ring";
  c.parallel.sequence_parallel = true;
  c.model.attention_dropout = 0;
  c.optimizer.share = "state";
  c.data.reset_attention_mask = c.data.reset_position_ids = true;
}
void over_all_rows(Config& c) {
  c.parallel.context = 4;
  c.parallel.context_exchange = "gathered";
  c.recompute = {"full", 1};
  like_llama(c.model);
}
void with_growth(Config& c) {
  c.train.batch_ramp_up = {4, 4, 6};
  c.checkpoint.async = true;
}

}  // namespace

TEST_CASE("evaluation tasks: change no bit of training and match megatron_eval") {
  const TaskFiles files;
  const TaskLayout layout =
      GENERATE(TaskLayout{"one rank"}, TaskLayout{"documents", 1, 1, 2, with_documents},
               TaskLayout{"bf16, distributed", 2, 1, 2, in_halves}, TaskLayout{"interleaved", 1, 2, 1, interleaved},
               TaskLayout{"in parts", 2, 2, 2, in_parts}, TaskLayout{"growth", 1, 2, 2, with_growth},
               TaskLayout{"context", 1, 1, 1, over_context}, TaskLayout{"ring, sequence", 2, 1, 2, over_a_ring},
               TaskLayout{"context 4, stages", 1, 2, 1, over_all_rows});
  INFO(layout.name);
  const LoopResult without = run_loop(run_of(files, layout, "without"));
  all_told_nothing(without);
  Config config = run_of(files, layout, "with");
  config.evaluation.tasks = files.tasks();
  const LoopResult with = run_loop(config);
  all_told_nothing(with);
  REQUIRE(lines(without, "train").size() == 4);
  CHECK((lines(with, "train") == lines(without, "train")));
  CHECK((lines(with, "eval") == lines(without, "eval")));
  CHECK(lines(without, "task").empty());
  CHECK(names_and_steps(with) == std::vector<std::string>{"wiki 2", "words 3", "wiki 4", "words 4", "choices 4"});
  CHECK(with.log.find("not as predicted") == std::string::npos);
  if (layout.change == nullptr) CHECK(with.log.find("as predicted, to the byte") != std::string::npos);

  std::map<std::string, EvaluationTaskConfig> by_name;
  for (const EvaluationTaskConfig& entry : config.evaluation.tasks) by_name[entry.name] = entry;
  const double rounding = config.precision.compute == "bf16" ? 0.02 : 1e-5;
  for (const nlohmann::json& line : lines(with, "task")) {
    CAPTURE(line.dump());
    const EvaluationResult expected = by_scorer(config, by_name.at(line.at("name")), line.at("step"));
    CHECK(line.at("task") == expected.task);
    CHECK(line.at("examples") == expected.examples);
    CHECK(line.at("targets") == expected.tokens);
    CHECK(std::abs(line.at("loss").get<double>() - expected.loss) < rounding);
    CHECK(line.contains("accuracy") == expected.accuracy.has_value());
    CHECK(line.contains("adjusted_perplexity") == expected.adjusted_perplexity.has_value());
    if (expected.accuracy && rounding < 1e-4) CHECK(line.at("accuracy") == *expected.accuracy);
    if (expected.accuracy_normalized && rounding < 1e-4) {
      CHECK(line.at("accuracy_normalized") == *expected.accuracy_normalized);
    }
  }
}

TEST_CASE("evaluation tasks: a continued run evaluates at the same steps", "[fault-17]") {
  const TaskFiles files;
  const TaskLayout layout{"", 1, 2, 2};
  Config config = run_of(files, layout, "straight");
  config.evaluation.tasks = files.tasks();
  const LoopResult straight = run_loop(config);
  config.run.directory = files.folder.file("stopped");
  for (const std::int64_t stop : {1, 2, 3}) {
    config.train.stop_after = stop;
    all_told_nothing(run_loop(config));
  }
  config.train.stop_after = 0;
  const LoopResult stopped = run_loop(config);
  all_told_nothing(stopped);
  CHECK((lines(stopped, "task") == lines(straight, "task")));
  CHECK((lines(stopped, "train") == lines(straight, "train")));
}

TEST_CASE("evaluation tasks: changed ones warn while new or removed ones do not") {
  const TaskFiles files;
  Config config = run_of(files, {"", 1, 1, 1}, "run");
  config.evaluation.tasks = files.tasks();
  config.train.stop_after = 1;
  all_told_nothing(run_loop(config));
  config.evaluation.tasks.erase(config.evaluation.tasks.begin());
  config.evaluation.tasks[1].name = "questions";
  config.train.stop_after = 2;
  CHECK(run_loop(config).log.find("evaluations are of other samples") == std::string::npos);
  write_file(files.folder.file("choices"), R"({"context":"a","choices":["b"],"answer":0})");
  config.train.stop_after = 0;
  const LoopResult changed = run_loop(config);
  all_told_nothing(changed);
  CHECK(changed.log.find("evaluations are of other samples") != std::string::npos);
  CHECK(changed.log.find("task questions") != std::string::npos);
  CHECK(names_and_steps(changed) == std::vector<std::string>{"words 3", "words 4", "questions 4"});
}

TEST_CASE("evaluation tasks: missing or wrong files end all ranks with one error") {
  const TaskFiles files;
  Config config = run_of(files, {"", 1, 1, 2}, "run");
  config.evaluation.tasks = {{.name = "a", .task = "lambada", .data = files.folder.file("wiki")}};
  std::vector<std::string> told(2);
  const auto open = [&] {
    run_as_threads(2, [&](Communicator& world) {
      Datasets datasets(config);
      try {
        open_evaluation_tasks(config, datasets, world);
      } catch (const Error& error) {
        told[static_cast<std::size_t>(world.rank())] = fmt::format("{}: {}", name_of(error.kind()), error.what());
      }
    });
  };
  open();
  for (const std::string& error : told) CHECK(error.find("wiki:1: ") != std::string::npos);
  CHECK(told[0].starts_with("data"));
  config.evaluation.tasks[0].data = files.folder.file("absent");
  open();
  for (const std::string& error : told) CHECK(error.find("absent") != std::string::npos);

  // Descriptions in a plan.
  Datasets datasets(config);
  require_error(ErrorKind::data, {"absent"}, [&] { describe_evaluation_tasks(config, &datasets); });
  CHECK(describe_evaluation_tasks(config, nullptr).find("which is not there") != std::string::npos);
  config.evaluation.tasks[0].data = files.folder.file("wiki");
  require_error(ErrorKind::data, {"wiki:1"}, [&] { describe_evaluation_tasks(config, nullptr); });
  config.evaluation.tasks = files.tasks();
  CHECK(describe_evaluation_tasks(config, &datasets).find("words (lambada of ") != std::string::npos);
  CHECK(describe_evaluation_tasks(config, nullptr).find("of the right form") != std::string::npos);
}
