#include "config/parse/parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include "base/core/error.h"
#include "base/text/utf8.h"
#include "config/parse/presets.h"
#include "config/parse/read_value.h"
#include "config/parse/text_checks.h"
#include "config/rules/rules.h"
#include "config/schema/megatron_flags.h"
#include "config/schema/print.h"
#include "config/schema/suggestions.h"
#include "config/schema/task.h"

namespace megatron {
namespace {

/// Where something was said: the file's line and column, or the number of an override. Orders messages.
struct InputPosition {
  std::size_t source = 0;  ///< 0: the file; 1, 2, ...: overrides; the largest: nowhere in particular
  std::size_t line = 0, column = 0;
  std::string text;  ///< "file:3:1" or "--set model.layers=x"

  auto order() const { return std::tuple(source, line, column); }
};

/// A switch of earlier versions, which files and checkpoints may have, and the values of the key that took its place.
struct EarlierSwitch {
  std::string_view table, name, now, when_true, when_false;
};
constexpr EarlierSwitch kEarlierSwitches[] = {{"optimizer", "distributed", "share", "state", "none"}};

const EarlierSwitch* find_earlier(std::string_view table, std::string_view name) {
  for (const EarlierSwitch& earlier : kEarlierSwitches) {
    if (table == earlier.table && name == earlier.name) return &earlier;
  }
  return nullptr;
}

struct Entry {
  const Key* key;
  const toml::node* node;
  InputPosition place;
};

class Parser {
 public:
  explicit Parser(std::string name) : name_(std::move(name)) {}

  /// Warnings about what parse() has read.
  const std::vector<std::string>& notes() const { return notes_; }

  Config parse(const std::string& text, const std::vector<std::string>& overrides, const FurtherChecks& further) {
    read_file(text);
    for (std::size_t i = 0; i < overrides.size(); ++i) read_override(overrides[i], i + 1);
    Config config;
    apply_preset_entry(config);
    apply_entries(config);
    leave_out_rotation(config.model);
    evaluate_each_pass(config);
    derive_head(config);
    if (!unreadable_) report(check_alone(config));
    if (!unreadable_ && !issues_.empty() && further) report(further(config));
    if (!issues_.empty()) throw_issues();
    return config;
  }

 private:
  void issue(const InputPosition& place, const std::string& message) {
    issues_.emplace_back(place, fmt::format("{}: error: {}", place.text, message));
  }

  InputPosition file_place(std::size_t line, std::size_t column) const {
    return {0, line, column, fmt::format("{}:{}:{}", name_, line, column)};
  }
  InputPosition place_of(const toml::key& key) const {
    return file_place(key.source().begin.line, key.source().begin.column);
  }

  // A text that cannot be parsed has one problem, and nothing more can be said about the file.
  void read_file(const std::string& text) {
    auto problem = check_text(text);
    if (!problem) problem = find_stray_character(text);
    if (problem) {
      unreadable_ = true;
      return issue(file_place(problem->line, problem->column), problem->message);
    }
    const toml::table* root = nullptr;
    try {
      root = &documents_.emplace_back(toml::parse(text));
    } catch (const toml::parse_error& error) {
      unreadable_ = true;
      std::string description(error.description());
      std::replace(description.begin(), description.end(), '\n', ' ');
      const bool unescaped = description.find("unescaped control character") != std::string::npos;
      if (unescaped) description += " (is a closing quote missing?)";
      return issue(file_place(error.source().begin.line, error.source().begin.column), description);
    }
    for (auto&& [name, node] : *root) read_table(name, node);
  }

  static bool is_table(std::string_view name) {
    const auto tables = schema_tables();
    return std::any_of(tables.begin(), tables.end(), [&](const TableDescription& t) { return t.name == name; });
  }

  void read_table(const toml::key& name, const toml::node& node) {
    const std::string table(name.str());
    const bool known = is_table(table);
    if (known && !node.is_table()) {
      return issue(place_of(name),
                   fmt::format("{}: expected table, got {}; {}", table, type_name(node), keys_of_table(table)));
    }
    if (!known && node.is_table()) {
      const std::string near = suggest_table(table);
      return issue(place_of(name), fmt::format("unknown table '{}'; {}", table,
                                               near.empty() ? "inputs/README.md lists the tables"
                                                            : fmt::format("did you mean '{}'?", near)));
    }
    if (!known) return unknown_key(place_of(name), "", table);
    for (auto&& [key_name, value] : *node.as_table()) {
      const Key* key = find_key(table, key_name.str());
      const EarlierSwitch* const earlier = key == nullptr ? find_earlier(table, key_name.str()) : nullptr;
      if (earlier != nullptr && node.as_table()->contains(earlier->now)) {
        issue(place_of(key_name),
              fmt::format("{0}.{1} is the earlier name of {0}.{2}, which is given too; remove {0}.{1}", table,
                          earlier->name, earlier->now));
      } else if (earlier != nullptr && value.is_boolean()) {
        read_earlier(*earlier, *value.value<bool>(), place_of(key_name));
      } else if (key == nullptr) {
        unknown_key(place_of(key_name), table, std::string(key_name.str()));
      } else {
        entries_.push_back({key, &value, place_of(key_name)});
      }
    }
  }

  void read_earlier(const EarlierSwitch& earlier, bool on, const InputPosition& place) {
    const std::string_view value = on ? earlier.when_true : earlier.when_false;
    const toml::table& document = documents_.emplace_back(toml::table{{"value", value}});
    entries_.push_back({find_key(earlier.table, earlier.now), document.get("value"), place});
    notes_.push_back(fmt::format("{}: {}.{} = {} is read as {}.{} = \"{}\", which has its place now", place.text,
                                 earlier.table, earlier.name, on, earlier.table, earlier.now, value));
  }

  static std::string keys_of_table(const std::string& table) {
    std::vector<std::string_view> names;
    for (const Key& key : schema()) {
      if (key.table == table) names.push_back(key.name);
    }
    return fmt::format("'{}' is a table, and its keys are {}", table, fmt::join(names, ", "));
  }

  void unknown_key(const InputPosition& place, const std::string& table, const std::string& name) {
    if (const EarlierSwitch* const earlier = find_earlier(table, name)) {
      return issue(place, fmt::format("unknown key '{}.{}'; it is now {}.{} = \"{}\" (true) or \"{}\" (false)", table,
                                      name, table, earlier->now, earlier->when_true, earlier->when_false));
    }
    const std::string near = suggest_key(table, name);
    std::string advice = near.empty() ? "" : fmt::format("did you mean '{}'?", near);
    if (const MegatronFlag* const flag = find_megatron_flag("--" + name); flag != nullptr && flag->key.empty()) {
      advice = fmt::format("Megatron-LM's {} has {}{}{}", flag->flag, megatron_advice(*flag, ""),
                           advice.empty() ? "" : "; or ", advice);
    }
    if (advice.empty()) advice = "inputs/README.md lists the keys";
    issue(place, fmt::format("unknown key '{}{}'; {}", table.empty() ? "" : table + ".", name, advice));
    // The key that was meant was given: no second message that it is missing.
    if (!near.empty()) failed_.insert(near.find('.') == std::string::npos ? table + "." + near : near);
  }

  void read_override(const std::string& option, std::size_t number) {
    const InputPosition place{number, 0, 0, "--set " + option.substr(0, 200)};
    if (first_invalid_utf8(option) < option.size())
      return issue({number, 0, 0, "--set"}, "its text is not valid UTF-8");
    const auto equals = option.find('=');
    if (equals == std::string::npos) return issue(place, "expected table.key=value");
    std::string name = trimmed(option.substr(0, equals));
    const std::string text = trimmed(option.substr(equals + 1));
    const auto dot = name.find('.');
    const std::string table = dot == std::string::npos ? "" : name.substr(0, dot);
    const std::string key_name = dot == std::string::npos ? name : name.substr(dot + 1);
    const Key* key = find_key(table, key_name);
    if (key == nullptr && dot == std::string::npos && is_table(name)) {
      return issue(place, keys_of_table(name) + fmt::format("; set one as {}.KEY=VALUE", name));
    }
    if (key == nullptr) return unknown_key(place, table, key_name);
    if (const toml::node* node = override_value(*key, text, place)) entries_.push_back({key, node, place});
  }

  /// The option's text as a TOML value, or as a string; nullptr when it is neither.
  const toml::node* override_value(const Key& key, const std::string& text, const InputPosition& place) {
    TextValue value = read_text(text, key);
    if (value.problem.empty()) return documents_.emplace_back(std::move(value.document)).get("value");
    issue(place, value.problem);
    failed_.insert(key.full_name());
    return nullptr;
  }

  static std::string trimmed(const std::string& text) {
    const auto first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
  }

  /// A preset is the ground that explicit keys are applied to, wherever in the file it stands; one of the command line
  /// replaces what the file says of the same things.
  void apply_preset_entry(Config& config) {
    Config chosen;
    for (const Entry& entry : entries_) {
      if (entry.key->full_name() != "model.preset") continue;
      if (read_value(*entry.node, *entry.key, chosen).empty()) {
        preset_replaces_file_ = entry.place.source > 0 && !chosen.model.preset.empty();
        continue;
      }
      for (const char* key : {"model.layers", "model.hidden_size", "model.attention_heads", "model.sequence_length"}) {
        failed_.insert(key);  // the preset would have given them
      }
    }
    if (const ModelPreset* preset = find_preset(chosen.model.preset)) apply_preset(*preset, config.model);
  }

  bool replaced_by_preset(const Entry& entry) const {
    return preset_replaces_file_ && entry.place.source == 0 && entry.key->table == "model" &&
           set_by_presets(entry.key->name);
  }

  /// The value in the file that a preset replaces by another; empty if it is the same, or given with --set as well.
  std::string replaced_value(const Entry& entry, const Config& ground) {
    Config file = ground;
    const std::string problem = read_value(*entry.node, *entry.key, file);
    if (!problem.empty()) issue(entry.place, problem);  // must be well-formed all the same
    const bool given_again = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& other) {
      return other.key == entry.key && other.place.source > 0;
    });
    const std::string value = print_value(*entry.key, file);
    return given_again || value == print_value(*entry.key, ground) ? "" : value;
  }

  /// A preset's rotation goes with its rotary positions: who chooses others has not asked for it.
  void leave_out_rotation(ModelConfig& model) const {
    if (model.positions() == PositionEmbedding::rotary || places_.contains("model.rotary_base")) return;
    model.rotary_base = ModelConfig().rotary_base;
  }

  /// A task is learned in a few passes, and which of them was best is what its evaluations tell.
  void evaluate_each_pass(Config& config) const {
    if (places_.contains("train.evaluate_every") || !config.task.has_head()) return;
    config.train.evaluate_every_epoch = config.train.epochs > 0 && !config.data.validation.empty();
  }

  void apply_entries(Config& config) {
    const Config ground = config;
    std::vector<std::string> replaced;
    for (const Entry& entry : entries_) {
      const std::string name = entry.key->full_name();
      if (replaced_by_preset(entry)) {
        const std::string value = replaced_value(entry, ground);
        if (!value.empty()) replaced.push_back(fmt::format("{} = {}", name, value));
        continue;
      }
      const std::string problem = read_value(*entry.node, *entry.key, config);
      if (!problem.empty()) {
        issue(entry.place, problem);
        failed_.insert(name);
        continue;
      }
      places_[name] = entry.place;
      if (entry.place.source > 0 && !entry.key->group.empty()) replace_group(entry, ground, config);
    }
    if (!replaced.empty()) {
      notes_.push_back(
          fmt::format("--set model.preset={} replaces these keys of {}: {}; to keep one, give it with --set as well",
                      config.model.preset, name_, fmt::join(replaced, ", ")));
    }
  }

  /// An override of one way to say a length takes the place of what the file said in another way.
  void replace_group(const Entry& entry, const Config& ground, Config& config) {
    for (const Key& other : schema()) {
      if (other.group != entry.key->group || &other == entry.key) continue;
      const auto place = places_.find(other.full_name());
      if (place == places_.end() || place->second.source > 0) continue;
      copy_value(other, ground, config);
      places_.erase(place);
    }
  }

  /// Except those that involve a key whose value is not known.
  void report(const std::vector<Violation>& violations) {
    const InputPosition nowhere{std::numeric_limits<std::size_t>::max(), 0, 0, name_};
    for (const Violation& violation : violations) {
      const bool known = std::none_of(violation.keys.begin(), violation.keys.end(),
                                      [&](const std::string& key) { return failed_.count(key) > 0; });
      if (!known) continue;
      // The first key that was said anywhere; an option rather than the file, for it is what made the difference.
      const InputPosition* place = &nowhere;
      for (const std::string& key : violation.keys) {
        const auto given = places_.find(key);
        if (given == places_.end()) continue;
        if (place == &nowhere || (place->source == 0 && given->second.source > 0)) place = &given->second;
      }
      issue(*place, violation.whole());
    }
  }

  [[noreturn]] void throw_issues() {
    std::stable_sort(issues_.begin(), issues_.end(),
                     [](const auto& a, const auto& b) { return a.first.order() < b.first.order(); });
    std::vector<std::string> lines;
    for (const auto& [place, line] : issues_) lines.push_back(line);
    throw Error(ErrorKind::configuration, fmt::format("{}", fmt::join(lines, "\n")));
  }

  std::string name_;
  std::deque<toml::table> documents_;  ///< the entries' nodes point into them
  std::vector<Entry> entries_;         ///< in order of application
  std::map<std::string, InputPosition> places_;
  std::set<std::string> failed_;  ///< keys whose value is not known: rules about them are left out
  std::vector<std::pair<InputPosition, std::string>> issues_;
  std::vector<std::string> notes_;
  bool unreadable_ = false, preset_replaces_file_ = false;
};

std::string read_text(const std::string& path) {
  std::error_code ignored;
  verify(!std::filesystem::is_directory(path, ignored), ErrorKind::configuration,
         "{}: error: this is a directory; name an input file, such as inputs/demo.toml", path);
  std::ifstream file(path, std::ios::binary);
  verify(file.is_open(), ErrorKind::configuration, "{}: error: cannot be opened: {}", path, std::strerror(errno));
  std::string text(kMaxInputBytes + 1, '\0');  // one byte more than allowed, to tell that there is more
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  verify(!file.bad(), ErrorKind::configuration, "{}: error: cannot be read: {}", path, std::strerror(errno));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

Config parse_config(const std::string& path, const std::vector<std::string>& overrides, std::vector<std::string>* notes,
                    const FurtherChecks& further) {
  return parse_config_text(read_text(path), path, overrides, notes, further);
}

Config parse_config_text(const std::string& text, const std::string& name, const std::vector<std::string>& overrides,
                         std::vector<std::string>* notes, const FurtherChecks& further) {
  Parser parser(name);
  Config config = parser.parse(text, overrides, further);
  if (notes != nullptr) *notes = parser.notes();
  return config;
}

}  // namespace megatron
