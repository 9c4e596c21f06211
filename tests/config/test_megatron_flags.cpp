// Megatron-LM's flags: each leads somewhere, and the page of them is what the table says.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "config/config_support.h"
#include "config/schema/megatron_flags.h"
#include "config/schema/schema.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("Megatron's flags: each row has a key that exists, or a reason", "[config]") {
  std::set<const MegatronFlag*> rows;
  for (const MegatronFlagGroup& group : megatron_flag_groups()) {
    for (const MegatronFlag& row : group.flags) {
      INFO(row.flag);
      CHECK(row.flag.starts_with("--"));
      CHECK(find_megatron_flag(row.flag) == &row);  // no flag is there twice
      CHECK((!row.key.empty() || !row.note.empty()));
      CHECK(!row.note.ends_with('.'));
      if (row.key.empty()) continue;
      const auto dot = row.key.find('.');
      CHECK(find_key(row.key.substr(0, dot), row.key.substr(dot + 1)) != nullptr);
    }
  }
}

TEST_CASE("Megatron's flags: those of its first examples are all there", "[config]") {
  for (const char* flag : {"--DDP-impl",
                           "--checkpoint-activations",
                           "--data-path",
                           "--dataset-impl",
                           "--eval-interval",
                           "--eval-iters",
                           "--finetune",
                           "--fp16",
                           "--genfile",
                           "--global-batch-size",
                           "--hidden-size",
                           "--json-key",
                           "--load",
                           "--log-interval",
                           "--lr",
                           "--lr-decay-iters",
                           "--lr-decay-style",
                           "--lr-warmup-fraction",
                           "--master_addr",
                           "--master_port",
                           "--max-position-embeddings",
                           "--micro-batch-size",
                           "--min-lr",
                           "--model-type",
                           "--nnodes",
                           "--no-load-optim",
                           "--no-load-rng",
                           "--node_rank",
                           "--nproc_per_node",
                           "--num-attention-heads",
                           "--num-layers",
                           "--num-samples",
                           "--out-seq-length",
                           "--output-prefix",
                           "--pipeline-model-parallel-size",
                           "--recompute",
                           "--sample-input-file",
                           "--save",
                           "--save-interval",
                           "--seq-length",
                           "--split",
                           "--strict-lambada",
                           "--target-pipeline-model-parallel-size",
                           "--task",
                           "--tensor-model-parallel-size",
                           "--tokenizer-type",
                           "--top_p",
                           "--train-data",
                           "--train-iters",
                           "--valid-data",
                           "--vocab",
                           "--vocab-file",
                           "--weight-decay",
                           "--clip-grad"}) {
    INFO(flag);
    CHECK(find_megatron_flag(flag) != nullptr);
  }
  CHECK(find_megatron_flag("--TOP-P") == find_megatron_flag("--top_p"));
  CHECK(find_megatron_flag("--dry-rum") == nullptr);
}

TEST_CASE("Megatron's flags: as keys, of Accelerate and nanoGPT, too", "[config]") {
  const auto answer = [](const std::string& key) { return error_of([&] { parse_small({key + "=1"}); }); };
  for (const auto& [key, ours] : {std::pair("max_iters", "train.steps"),
                                  {"out_dir", "run.directory"},
                                  {"valid_data", "data.validation"},
                                  {"lr_mult", "optimizer.groups"},
                                  {"use_custom_fsdp", "optimizer.share"}}) {
    CHECK_THAT(answer(key), Contains(ours));
  }
  CHECK_THAT(answer("tokenizer_type"),
             Contains("Megatron-LM's --tokenizer-type has no key here; the shards know their tokenizer"));
  CHECK_THAT(answer("calculate_per_token_loss"), Contains("always: a loss is divided by the tokens"));
}

TEST_CASE("Megatron's flags: what a message says of one", "[config]") {
  CHECK(megatron_advice(*find_megatron_flag("--num-layers"), "24") ==
        "write model.layers in the input file, or --set model.layers=24");
  CHECK(megatron_advice(*find_megatron_flag("--optimizer"), "adam") ==
        "write optimizer.name in the input file, or --set optimizer.name=VALUE (adam is adamw)");
  CHECK_THAT(megatron_advice(*find_megatron_flag("--decoupled-lr"), "1e-4"),
             Contains("optimizer.groups") && Contains("roles embedding and head with a learning_rate_factor"));
  CHECK(megatron_advice(*find_megatron_flag("--master_port"), "6000") == "no key here; MPI finds the ranks");
}

TEST_CASE("docs/from_megatron.md is what the table says", "[config][reference]") {
  const auto path = repository() / "docs/from_megatron.md";
  if (std::getenv("MEGATRON_WRITE_REFERENCE") != nullptr) std::ofstream(path) << megatron_reference();
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  INFO("to write it: MEGATRON_WRITE_REFERENCE=1 build/tests/test_config '[reference]'");
  CHECK(text == megatron_reference());
}
