#include "parity/covering_set.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <random>
#include <set>

#include "base/core/error.h"
#include "parity/subjects.h"

namespace megatron::test {

namespace {

struct Value {
  std::string name;  ///< "": the default, not named
  std::vector<std::string> settings = {};
  std::vector<std::string> trains = {};
};
using Option = std::vector<Value>;

Value grid(int tensor, int data, int pipeline) {
  return {fmt::format("{}x{}x{}", tensor, data, pipeline),
          {fmt::format("parallel.tensor={}", tensor), fmt::format("parallel.data={}", data),
           fmt::format("parallel.pipeline={}", pipeline)}};
}

// It has 8 layers with its decoder's. Not with ReLU, whose derivative jumps where 16 bits round to the other side of 0.
const std::vector<std::string> kRelativeT5 = {"model.family=t5",
                                              "model.layers=5",
                                              "model.decoder_layers=3",
                                              "model.position_embedding=relative",
                                              "model.relative_buckets=8",
                                              "model.relative_max_distance=12",
                                              "model.normalization=rmsnorm",
                                              "model.bias=false",
                                              "model.attention_scale=none",
                                              "model.scale_head=true",
                                              "model.activation=geglu"};

// Tokens go to all of them: 16 bits may choose others.
const std::vector<std::string> kExperts = {"moe.experts=4", "moe.top_k=4", "moe.every=2", "moe.ffn_hidden_size=32"};

const std::vector<std::string> kSharedExperts = with(kExperts, {"moe.shared_experts=2", "moe.shared_gate=true"});
const std::vector<std::string> kResidualExperts = with(kExperts, {"moe.residual=true", "moe.jitter=0.05"});
const std::vector<std::string> kDropless = {"moe.experts=4", "moe.top_k=4", "moe.every=2", "moe.ffn_hidden_size=32",
                                            "moe.drop=none"};

const std::vector<Option>& options() {
  static const std::vector<Option> all = {
      {grid(2, 2, 2), grid(4, 2, 1), grid(4, 1, 2), grid(2, 4, 1), grid(2, 1, 4), grid(1, 4, 2), grid(1, 2, 4),
       grid(1, 1, 8)},
      {{""}, {"sequence", {"parallel.sequence_parallel=true"}}},
      {{"1f1b"},
       {"gpipe", {"parallel.schedule=gpipe"}},
       {"zero bubble", {"parallel.schedule=zero_bubble"}},
       {"interleaved", {"parallel.schedule=interleaved", "parallel.virtual_stages=2"}}},
      {{""}, {"uneven"}},  // settings by the number of chunks
      {{""}, {"overlap", {"parallel.overlap_gradients=true"}}},
      {{""}, {"distributed", {"optimizer.share=state"}}},
      {{""}, {"recompute", {"recompute.mode=full"}}, {"recompute 1", {"recompute.mode=full", "recompute.layers=1"}}},
      {{""}, {"micro-batch 2", {"train.micro_batch_size=2"}}, {"micro-batch 3", {"train.micro_batch_size=3"}}},
      {{""}, {"bf16", {"precision.compute=bf16"}}, {"fp16", {"precision.compute=fp16", "precision.loss_scale=1024"}}},
      {{""}, {"sgd", {}, {"optimizer.name=sgd", "optimizer.momentum=0.9", "learning_rate.peak=0.1"}}},
      {{""},
       {"ramp-up", {}, {"train.batch_ramp_up={start=4, increment=4, samples=16}"}},
       {"curriculum", {}, {"train.curriculum={schedule=\"fixed_linear\", start=4, steps=4, multiple=4}"}}},
      {{""},
       {"Llama", {}, kLlama},
       {"ALiBi, one group", {}, kOneGroup},
       {"BERT", {}, {"model.family=bert"}},
       {"T5", {}, {"model.family=t5", "model.layers=4", "model.head_bias=true"}},
       {"relative T5", {}, kRelativeT5},
       {"experts", {}, kExperts},
       {"expert 2", {"parallel.expert=2"}, kExperts},
       {"shared experts", {}, kSharedExperts},
       {"residual experts", {}, kResidualExperts},
       {"dropless, expert 2", {"parallel.expert=2"}, kDropless}},
  };
  return all;
}

using Choice = std::vector<std::size_t>;  // a value of each option

bool has(const std::vector<std::string>& settings, const std::string& setting) {
  return std::find(settings.begin(), settings.end(), setting) != settings.end();
}

Row row_of(const Choice& choice) {
  Row row{"", 1, 1, 1, {}, {}, ""};
  std::vector<std::string> names;
  bool uneven = false;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const Value& value = options()[i][choice[i]];
    if (!value.name.empty()) names.push_back(value.name);
    uneven = uneven || value.name == "uneven";
    row.how.insert(row.how.end(), value.settings.begin(), value.settings.end());
    row.trains.insert(row.trains.end(), value.trains.begin(), value.trains.end());
  }
  row.name = fmt::format("{}", fmt::join(names, ", "));
  std::sscanf(row.name.c_str(), "%dx%dx%d", &row.tensor, &row.data, &row.pipeline);
  row.how.erase(row.how.begin(), row.how.begin() + 3);  // the grid is the row's own
  if (uneven) {
    const int chunks = row.pipeline * (has(row.how, "parallel.virtual_stages=2") ? 2 : 1);
    // Divisions of 8 layers; impossible ones are refused like any other choice.
    row.how.push_back(fmt::format("parallel.layers_per_stage={}", chunks == 2   ? "[3, 5]"
                                                                  : chunks == 4 ? "[1, 3, 3, 1]"
                                                                                : "[8, 0]"));
  }
  return row;
}

bool possible(const Choice& choice) {
  try {
    config_of(row_of(choice));
    return true;
  } catch (const Error&) {
    return false;
  }
}

struct Pair {
  std::size_t option_a, a, option_b, b;
  auto operator<=>(const Pair&) const = default;
};

std::set<Pair> pairs_of(const Choice& choice) {
  std::set<Pair> pairs;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    for (std::size_t j = i + 1; j < choice.size(); ++j) pairs.insert({i, choice[i], j, choice[j]});
  }
  return pairs;
}

std::set<Pair> all_pairs() {
  std::set<Pair> pairs;
  for (std::size_t i = 0; i < options().size(); ++i) {
    for (std::size_t j = i + 1; j < options().size(); ++j) {
      for (std::size_t a = 0; a < options()[i].size(); ++a) {
        for (std::size_t b = 0; b < options()[j].size(); ++b) pairs.insert({i, a, j, b});
      }
    }
  }
  return pairs;
}

// The one of many random rows with this pair that has the most pairs that are in no row yet; nothing if no row is
// possible.
std::optional<Choice> best_row(const Pair& pair, const std::set<Pair>& missing, std::mt19937& random) {
  constexpr int kTries = 300;
  std::optional<Choice> best;
  std::size_t most = 0;
  for (int i = 0; i < kTries; ++i) {
    Choice choice;
    for (const Option& option : options()) choice.push_back(random() % option.size());
    choice[pair.option_a] = pair.a;
    choice[pair.option_b] = pair.b;
    std::size_t covered = 0;
    for (const Pair& one : pairs_of(choice)) covered += missing.count(one);
    if (covered <= most || !possible(choice)) continue;
    most = covered;
    best = choice;
  }
  return best;
}

std::string name_of(std::size_t option, std::size_t value) {
  const std::string& name = options()[option][value].name;
  return name.empty() ? fmt::format("no {}", options()[option].back().name) : name;
}

CoveringSet make_covering_set() {
  CoveringSet set;
  std::mt19937 random(20);  // the engine's numbers are the same everywhere
  std::set<Pair> missing = all_pairs();
  while (!missing.empty()) {
    const Pair pair = *missing.begin();
    if (const std::optional<Choice> choice = best_row(pair, missing, random)) {
      for (const Pair& one : pairs_of(*choice)) missing.erase(one);
      set.rows.push_back(row_of(*choice));
    } else {
      missing.erase(pair);
      set.impossible.push_back(name_of(pair.option_a, pair.a) + " + " + name_of(pair.option_b, pair.b));
    }
  }
  return set;
}

}  // namespace

const CoveringSet& covering_set() {
  static const CoveringSet set = make_covering_set();
  return set;
}

}  // namespace megatron::test
