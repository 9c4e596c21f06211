// A run's weights by way of Hugging Face's format: the run that starts from them is the same run.
#include <cstring>

#include "checkpoint/hugging_face/chat_template.h"
#include "checkpoint/hugging_face/hugging_face.h"
#include "checkpoint/store/difference.h"
#include "data/shards/kept_tokenizer.h"
#include "distributed/comm/thread_communicator.h"
#include "inference/decoding/inference_model.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::vector<std::string> losses_of(const LoopResult& result) {
  for (const std::string& told : result.told) REQUIRE(told == "");
  std::vector<std::string> losses;
  for (const nlohmann::json& line : result.metrics) {
    if (line.at("kind") == "train") losses.push_back(line.at("loss").dump() + " " + line.at("grad_norm").dump());
  }
  return losses;
}

/// The configuration of a run of one step, which is done, in folder.file("first").
Config trained_first(const ShardFolder& folder) {
  Config config = tiny_config();
  config.data.train = make_corpus(folder);
  config.train.steps = config.checkpoint.every_steps = 1;
  config.run.directory = folder.file("first");
  losses_of(run_loop(config));
  return config;
}

}  // namespace

TEST_CASE("exported, imported and trained on: as from the checkpoint itself", "[train]") {
  const ShardFolder folder;
  Config config = tiny_config();
  const std::string corpus = make_corpus(folder);
  config.data.train = corpus;
  config.train.steps = 3;
  config.checkpoint.every_steps = 3;
  config.model.hidden_size = 24;  // no multiples of what matrices are transposed by
  config.model.ffn_hidden_size = 52;
  config.parallel.tensor = 2;
  config.parallel.pipeline = 2;
  config.parallel.data = 1;
  config.run.directory = folder.file("first");
  losses_of(run_loop(config));

  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader source = open_named_checkpoint(world, folder.file("first"), warnings);
    const ConversionReport exported = export_checkpoint(source, folder.file("exported"), world, {});
    CHECK(exported.compared->largest_difference == 0);
    CHECK(exported.compared->logits.size() == exported.compared->tokens.size() * 50);
    // The shards' vocabulary has no files that could be exported, but a name and a hash.
    const ConversionReport imported = import_checkpoint(folder.file("exported"), folder.file("imported"), world, {});
    CHECK(imported.has_tokenizer);
    ImportOptions by_data;
    by_data.data = corpus;
    import_checkpoint(folder.file("exported"), folder.file("by data"), world, by_data);
    const CheckpointReader target = open_named_checkpoint(world, folder.file("imported"), warnings);
    CHECK(target.states().empty());
    CHECK(target.state().facts == source.state().facts);
    for (const TensorDifference& tensor : compare_tensors(source, target, false)) {
      CAPTURE(tensor.name);
      CHECK(tensor.equal() == (tensor.name != "embedding.word.weight"));  // whose padding is zero now
    }
    const CheckpointReader other = open_named_checkpoint(world, folder.file("by data"), warnings);
    CHECK(other.state().facts == source.state().facts);
  });

  config.checkpoint.initialize_from = folder.file("first");
  config.run.directory = folder.file("from the checkpoint");
  const std::vector<std::string> expected = losses_of(run_loop(config));
  REQUIRE(expected.size() == 3);
  config.checkpoint.initialize_from = folder.file("imported");
  config.run.directory = folder.file("from the import");
  CHECK(losses_of(run_loop(config)) == expected);
}

TEST_CASE("import: without a tokenizer it says what to do and any shards train", "[train]") {
  const ShardFolder folder;
  Config config = trained_first(folder);
  const auto read = [](const std::string& path) { return nlohmann::json::parse(contents_of(path)); };
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader source = open_named_checkpoint(world, folder.file("first"), warnings);
    export_checkpoint(source, folder.file("exported"), world, {});
    nlohmann::json theirs = read(folder.file("exported/config.json"));
    theirs.at("megatron_train")["tokenizer"] = "sentencepiece";  // an export whose file has been lost
    theirs.at("megatron_train")["tokenizer_hash"] = "0123456789abcdef";
    write_file(folder.file("exported/config.json"), theirs.dump());
    const ConversionReport lost = import_checkpoint(folder.file("exported"), folder.file("lost"), world, {});
    CHECK_THAT(lost.unsupported_tokenizer,
               Contains(folder.file("exported/tokenizer.model") + " is not there") && Contains("--vocab-file FILE"));
    require_error(ErrorKind::data, {folder.file("lost/tokenizer.model") + " is not there"},
                  [&] { tokenizer_of_checkpoint(folder.file("lost"), "sentencepiece", 1, "", ""); });
    write_file(folder.file("lost/tokenizer.model"), "damaged");
    require_error(ErrorKind::checkpoint, {folder.file("lost/tokenizer.model"), "a .model file of SentencePiece"},
                  [&] { tokenizer_of_checkpoint(folder.file("lost"), "sentencepiece", 1, "", ""); });
    theirs.erase("megatron_train");
    theirs["eos_token_id"] = {7, 9};
    write_file(folder.file("exported/config.json"), theirs.dump());
    write_file(folder.file("exported/tokenizer_config.json"), R"({"chat_template": "{{ messages }}", "more": 1})");
    const ConversionReport report = import_checkpoint(folder.file("exported"), folder.file("imported"), world, {});
    CHECK_FALSE(report.has_tokenizer);
    CHECK(report.chat_template);
    const CheckpointReader imported = open_named_checkpoint(world, folder.file("imported"), warnings);
    CHECK(end_tokens_of(imported) == std::vector<std::int32_t>{7, 9});
    CHECK(end_tokens_of(source).empty());
    require_error(ErrorKind::configuration, {"imported without a tokenizer", "--vocab-file", "task.tokenizer"},
                  [&] { tokenizer_of_checkpoint(imported.path(), imported.state().facts.at("tokenizer"), 0, "", ""); });
    export_checkpoint(imported, folder.file("again"), world, {});
    theirs = read(folder.file("again/config.json"));
    CHECK(theirs.at("eos_token_id") == nlohmann::json{7, 9});
    CHECK_FALSE(theirs.at("megatron_train").contains("tokenizer"));
    // generation_config.json is asked before config.json.
    write_file(folder.file("again/generation_config.json"), R"({"eos_token_id": 5})");
    import_checkpoint(folder.file("again"), folder.file("last"), world, {});
    CHECK(end_tokens_of(open_named_checkpoint(world, folder.file("last"), warnings)) == std::vector<std::int32_t>{5});
    write_file(folder.file("again/generation_config.json"), R"({"eos_token_id": "5"})");
    require_error(ErrorKind::checkpoint, {"again: \"eos_token_id\" is \"5\""},
                  [&] { import_checkpoint(folder.file("again"), folder.file("none"), world, {}); });
  });
  config.checkpoint.initialize_from = folder.file("imported");
  config.run.directory = folder.file("from the import");
  config.model.vocab_multiple = 128;  // as of any import that does not say
  losses_of(run_loop(config));
  // The tokens that end a text and the chat template come along, and stay when the run resumes.
  config.train.steps = config.checkpoint.every_steps = 2;
  losses_of(run_loop(config));
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader trained = open_named_checkpoint(world, config.run.directory, warnings);
    CHECK(trained.state().step == 2);
    CHECK(end_tokens_of(trained) == std::vector<std::int32_t>{7, 9});
    CHECK(kept_chat_template(trained) == nlohmann::json{{"chat_template", "{{ messages }}"}});
  });
}

TEST_CASE("import: a chat template is found as transformers finds it", "[train]") {
  const TemporaryFolder folder;
  std::string unusable;
  const std::string config = folder.file("tokenizer_config.json");
  CHECK(chat_template_in(folder.path(), unusable).is_null());
  write_file(config, "{}");
  CHECK(chat_template_in(folder.path(), unusable).is_null());
  write_file(config, "not JSON");  // a file of the tokenizer, whose reader refuses it
  CHECK(chat_template_in(folder.path(), unusable).is_null());
  // With the names of the tokens that a template speaks of, in either form.
  write_file(config,
             R"({"chat_template": "a", "bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": "p"})");
  nlohmann::json found = chat_template_in(folder.path(), unusable);
  CHECK(found == nlohmann::json{{"chat_template", "a"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}});
  CHECK(one_chat_template(found) == "a");
  CHECK(one_chat_template(nullptr).empty());
  // Several of them: where there is room for one it is the default one.
  write_file(config, R"({"chat_template": [{"name": "rag", "template": "b"}, {"name": "default", "template": "c"}]})");
  found = chat_template_in(folder.path(), unusable);
  CHECK(found.at("chat_template").size() == 2);
  CHECK(one_chat_template(found) == "c");
  // chat_template.jinja comes before the entry of tokenizer_config.json.
  write_file(folder.file("chat_template.jinja"), "d\n");
  CHECK(chat_template_in(folder.path(), unusable) == nlohmann::json{{"chat_template", "d\n"}});
  std::filesystem::remove(folder.file("chat_template.jinja"));
  CHECK(unusable.empty());
  for (const char* wrong : {"3", "{\"default\": \"a\"}", "[\"a\"]", "[{\"name\": \"default\"}]"}) {
    write_file(config, fmt::format("{{\"chat_template\": {}}}", wrong));
    unusable.clear();
    CHECK(chat_template_in(folder.path(), unusable).is_null());
    CHECK(unusable.find("tokenizer_config.json: \"chat_template\" is neither") != std::string::npos);
  }
  write_file(config, "{}");
  write_file(folder.file("chat_template.jinja"), std::string((1 << 20) + 1, 'x'));
  CHECK(chat_template_in(folder.path(), unusable).is_null());
  CHECK(unusable.find("larger than 1 MiB") != std::string::npos);
}

TEST_CASE("an import of another program's folder says what it is and what to do", "[fault-131]") {
  const ShardFolder folder;
  trained_first(folder);
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    export_checkpoint(open_named_checkpoint(world, folder.file("first"), warnings), folder.file("exported"), world, {});
    const std::string file = folder.file("exported/model.safetensors"), bytes = contents_of(file);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const auto header = nlohmann::json::parse(bytes.substr(8, length));
    const std::size_t data = 8 + length;
    for (const std::string prefix : {"_orig_mod.", "module."}) {
      nlohmann::json wrapped;
      for (const auto& [name, tensor] : header.items()) wrapped[(name == "__metadata__" ? "" : prefix) + name] = tensor;
      const std::string text = wrapped.dump();
      length = text.size();
      write_file(file, std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + bytes.substr(data));
      require_error(ErrorKind::checkpoint, {"begins with \"" + prefix + "\"", "save_pretrained"},
                    [&] { import_checkpoint(folder.file("exported"), folder.file("imported"), world, {}); });
    }
    write_file(folder.file("latest_checkpointed_iteration.txt"), "100");
    require_error(ErrorKind::checkpoint, {"a checkpoint of Megatron-LM", "scripts/megatron_to_safetensors.py"},
                  [&] { import_checkpoint(folder.path(), folder.file("imported"), world, {}); });
  });
}
