// Keys of config.json that are absent, null, changed or contradict each other: an import computes what
// transformers 4.57 and 5 compute, or is refused. scripts/checks/interop_edits.py asked both;
// scripts/tables/make_interop_defaults.py read the defaults of their configuration classes.
#include <set>

#include "checkpoint/hugging_face/hugging_face_families.h"
#include "golden/interop_models.h"

using namespace megatron;
using namespace megatron::test;

namespace {

json golden_json(const std::string& name) {
  return json::parse(contents_of(std::string(MEGATRON_GOLDEN_FOLDER) + "/" + name));
}

std::vector<std::string> names_in(const json& object) {
  std::vector<std::string> names;
  for (const auto& entry : object.items()) names.push_back(entry.key());
  return names;
}

constexpr std::size_t kTokens = 16, kEncoderTokens = 48;  // as scripts/golden/make_interop_golden.py has them

/// The first logits of the last of these tokens; empty with fewer positions, nothing where the import is refused.
std::optional<std::vector<float>> imported_logits(const Copy& copy, std::size_t count) {
  std::optional<std::vector<float>> result;
  try {
    const LogitComparison compared = *import_model(copy.path(), copy.target()).compared;
    result.emplace();
    const std::size_t encoder = compared.encoder_tokens.size(), all = compared.tokens.size();
    if (all >= kTokens && (encoder == 0 || encoder == kEncoderTokens)) {
      const auto row =
          compared.logits.begin() + static_cast<std::ptrdiff_t>((kTokens - 1) * compared.logits.size() / all);
      result->assign(row, row + static_cast<std::ptrdiff_t>(count));
    }
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::checkpoint);
  }
  fs::remove_all(copy.target());
  return result;
}

/// Models that transformers makes of an edited file: none, one, or one per version where these disagree.
std::vector<std::vector<float>> answers_of(const json& row) {
  std::vector<std::vector<float>> answers;
  for (const char* version : {"transformers 4", "transformers 5"}) {
    if (row.at(version).is_null()) continue;
    const auto answer = row.at(version).get<std::vector<float>>();
    if (answers.empty() || largest_difference(answers[0], answer) > 1e-3) answers.push_back(answer);
  }
  return answers;
}

/// Absent keys whose default gives a model that both versions compute, and that is refused all the same.
const std::set<std::string> kRefusedDefaults = {"rotary_pct"};  // a quarter of heads of 4: an odd number of channels

}  // namespace

TEST_CASE("config.json: changed keys mean what transformers reads", "[interop]") {
  const json all = golden_json("interop_edits.json");
  const auto name = GENERATE_COPY(from_range(names_in(all)));
  const Copy copy(name);
  int models = 0;
  for (const json& row : all.at(name).at("edits")) {
    json config = all.at(name).at("config");
    bool only_absent = true, refused_default = false;
    for (const auto& [key, value] : row.at("edit").items()) {
      config[key] = value;
      if (value == "<absent>") config.erase(key);
      only_absent = only_absent && value == "<absent>";
      refused_default = refused_default || kRefusedDefaults.contains(key);
    }
    write_file(copy.path() + "/config.json", config.dump());
    INFO(name << " with " << row.at("edit").dump());
    const auto answers = answers_of(row);
    const auto logits = imported_logits(copy, answers.empty() ? 0 : answers[0].size());
    if (answers.size() > 1) CHECK_FALSE(logits);
    if (answers.size() != 1) continue;
    if (only_absent && !refused_default) CHECK(logits);
    if (!logits || logits->empty()) continue;
    CHECK(largest_difference(*logits, answers[0]) < 1e-3);
    ++models;
  }
  CHECK(models > 20);
}

TEST_CASE("config.json: defaults are those of each version of transformers", "[interop]") {
  // transformers 5 ties every head of mT5, and reads the one in the files all the same.
  const std::set<std::pair<std::string, std::string>> differing = {{"mt5", "tie_word_embeddings"}};
  const json all = golden_json("interop_defaults.json");
  for (const auto& [version, families] : all.items()) {
    CHECK(families.size() == hugging_face_families().size());
    for (const HuggingFaceFamily& family : hugging_face_families()) {
      for (const auto& [key, value] : families.at(family.name).items()) {
        INFO(version << ", " << family.name << ": " << key);
        REQUIRE(family.defaults.keys.contains(key));
        const bool differs = version != "transformers 4.57" && differing.contains({family.name, key});
        CHECK((family.defaults.keys.at(key) == value) != differs);
      }
    }
  }
}

TEST_CASE("config.json: a window of 4096 is Mistral's default, none is Mixtral's", "[interop]") {
  const auto window_of = [](const char* name) {
    json config = json::parse(contents_of(stored_model(name) + "/config.json"));
    config.erase("sliding_window");
    return parse_hugging_face_config(config, 100).model.attention_window;
  };
  CHECK(window_of("mistral") == 4096);
  CHECK(window_of("mixtral") == 0);
}
