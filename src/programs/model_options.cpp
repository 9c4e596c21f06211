#include "programs/model_options.h"

#include <fmt/format.h>

#include "base/system/regular_file.h"
#include "base/text/foreign_json.h"
#include "checkpoint/hugging_face/checkpoint_tokenizer.h"
#include "data/shards/kept_tokenizer.h"
#include "data/tokenizer_kinds/hugging_face_folder.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "distributed/comm/agreement.h"

namespace megatron {

namespace po = boost::program_options;

RunConfig ModelOptions::run() const {
  RunConfig run;
  run.device = device;
  run.threads = threads;
  return run;
}

void add_source_option(po::options_description& described, ModelOptions& options, const char* source) {
  described.add_options()("source", po::value(&options.source)->value_name(source),
                          "a run's directory or one checkpoint folder");
}

void add_model_options(po::options_description& described, ModelOptions& options, const std::string& shared) {
  auto add = described.add_options();
  add("tensor", po::value(&options.tensor)->default_value(1)->value_name("T"),
      "ranks that share each layer's matrices");
  add("pipeline", po::value(&options.pipeline)->default_value(1)->value_name("P"),
      fmt::format("stages that share the layers; the ranks that are left share the {}", shared).c_str());
  add("precision", po::value(&options.precision)->default_value("fp32")->value_name("fp32|bf16|fp16|checkpoint"),
      "of weights and arithmetic; checkpoint: the one the model was trained with");
  add("device", po::value(&options.device)->default_value("auto")->value_name("auto|cpu|cuda"),
      "auto: a CUDA device where there is one");
  add("threads", po::value(&options.threads)->default_value(1)->value_name("N"), "threads per rank on the CPU");
  add("vocab-file", po::value(&options.vocab_file)->value_name("FILE"),
      "vocab.json, or a tokenizer.json, vocab.txt or .model file alone; default: those in the run's folder tokenizer/, "
      "where training keeps them");
  add("merge-file", po::value(&options.merge_file)->value_name("FILE"), "default: merges.txt next to vocab.json");
}

void add_begin_token_option(po::options_description& described, std::string& chosen, const std::string& places) {
  described.add_options()(
      "begin-token", po::value(&chosen)->default_value("auto")->value_name("auto|yes|no"),
      fmt::format("whether the token that begins texts (<s>) stands in front of each; auto: {}", places).c_str());
}

void check_begin_token(const std::string& chosen) {
  verify(chosen == "auto" || chosen == "yes" || chosen == "no", ErrorKind::configuration,
         "--begin-token: auto, yes or no; see --help");
}

std::optional<std::int32_t> chosen_begin_token(const std::string& chosen, const CheckpointReader& checkpoint,
                                               const Tokenizer& tokenizer) {
  const std::optional<BeginToken> known = begin_token_of(checkpoint);
  if (chosen == "no") return std::nullopt;
  if (chosen == "auto" && (!known || !known->by_default)) return std::nullopt;
  const std::int32_t named = tokenizer.special_ids().bos;
  const std::int32_t id = known ? known->id : named >= 0 ? named : tokenizer.eod_id();
  verify(id < tokenizer.vocab_size(), ErrorKind::checkpoint,
         "{}: its begin token has the id {}, and there are {} tokens", checkpoint.path(), id, tokenizer.vocab_size());
  return id;
}

void check_model_options(const ModelOptions& options) {
  const auto require = [](bool condition, const char* message) {
    verify(condition, ErrorKind::configuration, "{}; see --help", message);
  };
  require(options.tensor > 0 && options.pipeline > 0, "--tensor and --pipeline: 1 or more");
  require(options.threads > 0 && options.threads <= 1024, "--threads: 1 to 1024");
  const std::string &device = options.device, &precision = options.precision;
  require(device == "auto" || device == "cpu" || device == "cuda", "--device: auto, cpu or cuda");
  require(precision == "fp32" || precision == "bf16" || precision == "fp16" || precision == "checkpoint",
          "--precision: fp32, bf16, fp16 or checkpoint");
}

std::unique_ptr<Tokenizer> tokenizer_of(const CheckpointReader& checkpoint, const ModelOptions& options) {
  const nlohmann::json& facts = checkpoint.state().facts;
  verify(facts.contains("tokenizer"), ErrorKind::checkpoint,
         "{} was not written by megatron_train: it has no tokenizer", checkpoint.path());
  if (facts.at("tokenizer") == kUnknownTokenizer && !options.vocab_file.empty()) {
    TokenizerChoice choice = choice_of_file(options.vocab_file, options.merge_file);
    choice.rows = integer_at(facts, "vocab_size", 1, std::int64_t{1} << 40);
    std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(choice);
    verify(tokenizer->vocab_size() <= choice.rows, ErrorKind::checkpoint,
           "{} has a vocabulary of {} tokens, and --vocab-file {} has {}: it is of another model", checkpoint.path(),
           choice.rows, options.vocab_file, tokenizer->vocab_size());
    return tokenizer;
  }
  return tokenizer_of_checkpoint(checkpoint.path(), facts.at("tokenizer").get<std::string>(),
                                 facts.value("tokenizer_hash", std::uint64_t{0}), options.vocab_file,
                                 options.merge_file);
}

constexpr std::uint64_t kMostText = std::uint64_t{1} << 30;  // in a broadcast

std::string read_on_first_rank(const std::string& path, Communicator& world) {
  std::string text;
  agree(world, [&] {
    if (world.rank() != 0) return;
    const RegularFile file(path, ErrorKind::data);
    verify(file.bytes() <= kMostText, ErrorKind::data, "{} has {} bytes, and at most 1 GiB is read; cut it", path,
           file.bytes());
    text.resize(file.bytes());
    file.read(0, text.data(), text.size());
  });
  return world.broadcast_text(text, 0);
}

}  // namespace megatron
