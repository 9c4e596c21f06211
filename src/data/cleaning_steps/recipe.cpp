#include "data/cleaning_steps/recipe.h"

#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>

#include "base/core/error.h"
#include "base/core/named_rows.h"
#include "base/system/regular_file.h"
#include "config/parse/text_checks.h"
#include "config/schema/suggestions.h"
#include "data/cleaning_steps/input_hashes.h"
#include "data/cleaning_steps/result_folder.h"
#include "data/preprocess/same_inputs.h"
#include "distributed/comm/agreement.h"

namespace megatron {

namespace {

/// The text of a value that is no table and no list; nothing for these.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  return std::nullopt;
}

constexpr KeyRow kCommonKeys[] = {
    {"output", KeyKind::text, "", "", ""},           {"format", KeyKind::text, "", "", ""},
    {"text_key", KeyKind::text, "text", "", ""},     {"compress", KeyKind::text, "none", "", ""},
    {"skip_bad", KeyKind::flag, "false", "", ""},    {"examples", KeyKind::whole, "5", "", ""},
    {"longest", KeyKind::whole, "16777216", "", ""}, {"compat", KeyKind::text, "none", "", ""},
};

class RecipeParser {
 public:
  struct Mistake {
    std::pair<std::uint32_t, std::uint32_t> place;  // line and column
    std::string what;
  };

  RecipeParser(const std::string& text, std::string name) : text_(text), name_(std::move(name)) {}

  Recipe parse() {
    read_text();
    if (mistakes_.empty()) read_common();
    if (mistakes_.empty()) read_steps();
    if (!mistakes_.empty()) throw Error(ErrorKind::configuration, all_mistakes());
    return std::move(recipe_);
  }

 private:
  void mistake(const toml::source_position& place, const std::string& what) {
    mistakes_.push_back({{place.line, place.column}, what});
  }
  /// All mistakes, a line each, by their places: tables have lost their order.
  std::string all_mistakes() {
    std::stable_sort(mistakes_.begin(), mistakes_.end(),
                     [](const Mistake& a, const Mistake& b) { return a.place < b.place; });
    std::string text;
    for (const Mistake& one : mistakes_) {
      text += fmt::format("{}{}:{}:{}: error: {}", text.empty() ? "" : "\n", name_, one.place.first, one.place.second,
                          one.what);
    }
    return text;
  }
  /// Does something whose Error is a mistake at this place.
  template <class Work>
  void at(const toml::node& node, const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      mistake(node.source().begin, error.what());
    }
  }

  void read_text() {
    auto problem = check_text(text_);
    if (!problem) problem = find_stray_character(text_);
    if (problem) {
      mistake({static_cast<toml::source_index>(problem->line), static_cast<toml::source_index>(problem->column)},
              problem->message);
      return;
    }
    try {
      root_ = toml::parse(text_);
    } catch (const toml::parse_error& error) {
      std::string description(error.description());
      std::replace(description.begin(), description.end(), '\n', ' ');
      mistake(error.source().begin, description);
    }
  }

  void read_common() {
    StepKeys keys(kCommonKeys);
    for (auto&& [key, node] : root_) {
      const std::string name(key.str());
      if (name == "step") continue;
      if (name == "inputs") {
        read_inputs(node);
      } else {
        set(keys, name, node);
      }
    }
    if (!mistakes_.empty()) return;
    common_.output = keys.text("output");
    common_.format = keys.text("format");
    common_.text_key = keys.text("text_key");
    common_.skip_bad = keys.flag("skip_bad");
    common_.examples = keys.whole("examples");
    common_.longest = keys.whole("longest");
    at(root_, [&] {
      common_.packing = packing_of(keys.text("compress"));
      compatibility_ = compatibility_of(keys.text("compat"));
    });
  }

  void read_inputs(const toml::node& node) {
    if (const auto* text = node.as_string()) inputs_.push_back(text->get());
    if (const auto* list = node.as_array()) {
      for (const toml::node& element : *list) {
        if (const auto* text = element.as_string()) inputs_.push_back(text->get());
      }
      if (inputs_.size() < list->size()) inputs_.clear();
    }
    if (inputs_.empty()) mistake(node.source().begin, "inputs: give the names of files and folders");
  }

  void set(StepKeys& keys, const std::string& name, const toml::node& node) {
    const std::optional<std::string> value = text_of(node);
    if (!value) return mistake(node.source().begin, fmt::format("{}: expected one value", name));
    at(node, [&] { keys.set(name, *value); });
  }

  void read_steps() {
    const auto* const steps = root_["step"].as_array();
    if (steps == nullptr || steps->empty() || !steps->is_array_of_tables()) {
      return mistake({1, 1}, "a recipe has [[step]] tables, each with a name");
    }
    for (const toml::node& step : *steps) read_step(*step.as_table());
  }

  void read_step(const toml::table& table) {
    const std::string name = table["name"].value_or(std::string());
    const StepRow* const row = find_step(name);
    if (row == nullptr) {
      const std::string near = suggest_choice(name, names_of(step_table()));
      return mistake(table.source().begin, fmt::format("there is no step '{}'{}", name,
                                                       near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
    StepJob job = common_;
    job.step = row;
    job.keys = StepKeys(row->keys, compatibility_);
    for (auto&& [key, node] : table) {
      if (key.str() != "name") set(job.keys, std::string(key.str()), node);
    }
    if (recipe_.steps.empty()) {
      job.inputs = inputs_;
    } else {
      job.format.clear();
    }
    recipe_.steps.push_back(std::move(job));
  }

  const std::string& text_;
  std::string name_;
  std::vector<Mistake> mistakes_;
  toml::table root_;
  StepJob common_;
  Compatibility compatibility_ = Compatibility::none;
  std::vector<std::string> inputs_;
  Recipe recipe_;
};

/// Behind the output's name: the folder of the results between the steps.
constexpr const char* kWorkEnding = ".steps";

std::string folder_of_step(const std::string& work, std::size_t number, const StepJob& job) {
  return fmt::format("{}/{:02}-{}", work, number + 1, job.step->name);
}

/// Removes the results between the steps, once the last one is there. Files of others there stay.
void remove_work(Communicator& world, const std::string& work, const Recipe& recipe) {
  on_rank_0(world, [&] {
    std::error_code ignored;
    for (std::size_t i = 0; i + 1 < recipe.steps.size(); ++i) {
      std::filesystem::remove_all(folder_of_step(work, i, recipe.steps[i]), ignored);
    }
    std::filesystem::remove(work, ignored);
  });
}

/// ErrorKind::configuration for an input that lies in the recipe's output or among the results between its steps.
void require_outside(const std::string& input, const std::string& output) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path file = fs::weakly_canonical(input, ignored);
  for (const std::string& folder : {output, output + kWorkEnding}) {
    const fs::path above = fs::weakly_canonical(folder, ignored);
    const bool inside =
        !above.empty() && std::mismatch(above.begin(), above.end(), file.begin(), file.end()).first == above.end();
    verify(!inside, ErrorKind::configuration, "{} lies in {}, where the recipe writes; choose another output", input,
           folder);
  }
}

/// The hash of everything that decides the recipe's result.
std::string recipe_hash(Communicator& world, const Recipe& recipe, std::vector<std::string>& input_hashes) {
  std::vector<InputIdentity> files;
  agree(world, [&] {
    const TextCorpus corpus(text_inputs(recipe.steps.front()), TextCorpus::Sizes::told_later);
    for (std::size_t i = 0; i < corpus.files(); ++i) {
      require_outside(corpus.path(i), recipe.steps.back().output);
      files.push_back(identify_input(corpus.path(i)));
    }
  });
  require_same_inputs(world, files);
  std::string identity = agreed_identity(world, recipe.steps);
  input_hashes = hash_inputs(world, files);
  for (const std::string& hash : input_hashes) identity += hash + "\n";
  return hash_in_words(identity);
}

/// Whether the output is there already; Error(configuration) if it is another's and may not be replaced.
bool is_finished(Communicator& world, const StepJob& last) {
  double finished = 0;
  on_rank_0(world, [&] {
    const auto there = provenance_in(last.output);
    const bool same = there && there->value("recipe", "") == last.recipe;
    finished = same && has_outputs(last.output, *there) ? 1 : 0;
    verify(!there || same || last.overwrite, ErrorKind::configuration,
           "{} already holds another result; add --overwrite to replace it, or choose another folder", last.output);
  });
  return world.all_reduce_value(finished, kDecision) > 0;
}

}  // namespace

Recipe parse_recipe(const std::string& text, const std::string& name) {
  return RecipeParser(text, name).parse();
}

Recipe read_recipe(Communicator& world, const std::string& path) {
  std::string text;
  on_rank_0(world, [&] {
    const RegularFile file(path, ErrorKind::configuration);
    verify(file.bytes() <= kMaxInputBytes, ErrorKind::configuration, "{}: larger than {} bytes: this is no recipe",
           path, kMaxInputBytes);
    text.resize(file.bytes());
    file.read(0, text.data(), text.size());
  });
  return parse_recipe(world.broadcast_text(text, 0), path);
}

bool play_recipe(Communicator& world, Recipe recipe, const RecipeListener& listener) {
  StepJob& last = recipe.steps.back();
  agree(world, [&] {
    verify(!recipe.steps.front().inputs.empty() && !last.output.empty(), ErrorKind::configuration,
           "a recipe needs inputs and an output");
  });
  while (last.output.size() > 1 && last.output.ends_with('/')) last.output.pop_back();
  const std::string work = last.output + kWorkEnding;
  last.recipe = recipe_hash(world, recipe, recipe.steps.front().input_hashes);
  if (is_finished(world, last)) {
    remove_work(world, work, recipe);
    return false;
  }
  std::vector<std::string> inputs = recipe.steps.front().inputs;
  for (std::size_t i = 0; i < recipe.steps.size(); ++i) {
    StepJob& job = recipe.steps[i];
    job.inputs = inputs;
    if (i + 1 < recipe.steps.size()) {
      job.output = folder_of_step(work, i, job);
      job.overwrite = true;  // older results there belong to the same output
      job.packing = job.packing == Packing::none ? Packing::none : Packing::zstd;
    }
    if (listener.begin) listener.begin(job);
    const StepResult result = play_step(world, job, listener.progress);
    if (listener.end) listener.end(job, result);
    inputs.clear();
    for (const auto& output : result.provenance.at("outputs")) {
      inputs.push_back(job.output + "/" + output.at("file").get<std::string>());
    }
  }
  remove_work(world, work, recipe);
  return true;
}

}  // namespace megatron
