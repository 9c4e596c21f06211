#include "planning/layout_search/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>

#include "base/core/error.h"
#include "base/system/regular_file.h"
#include "config/parse/text_checks.h"
#include "config/schema/suggestions.h"
#include "planning/layout_search/measured_tables.h"

namespace megatron {

namespace {

enum class NumberRange { positive, from_zero, share, share_from_zero };

/// A key that holds a number: where it goes, in which unit, and what it may be.
struct NumberKey {
  const char* name;
  double* to;
  double unit;
  NumberRange range;
  bool required;
};
struct FlagKey {
  const char* name;
  bool* to;
};

class HardwareReader {
 public:
  HardwareReader(const toml::table& root, std::string name) : root_(root), name_(std::move(name)) {}

  Hardware read(const std::string& software) {
    Hardware hardware;
    const IssueSink issues = [this](const toml::node* node, const std::string& message) { issue(node, message); };
    double ranks = 0, threads = 0;
    check_keys(root_, "",
               {"name", "device", "software_used", "compute", "node", "network", "software", "products", "rates_16bit",
                "rates_32bit", "links"});
    text(root_, "name", hardware.name, true);
    text(root_, "device", hardware.device, true);
    text(root_, "software_used", hardware.software_name, true);
    if (hardware.device != "cuda" && hardware.device != "cpu") {
      issue(root_["device"].node(), R"(device: "cuda" or "cpu")");
    }
    numbers("compute", {{"tflops_16bit", &hardware.flops_16bit, 1e12, NumberRange::positive, true},
                        {"tflops_32bit", &hardware.flops_32bit, 1e12, NumberRange::positive, true},
                        {"memory_gib", &hardware.memory_bytes, 1 << 30, NumberRange::positive, true},
                        {"reserved_gib", &hardware.reserved_bytes, 1 << 30, NumberRange::from_zero, false},
                        {"memory_gb_per_second", &hardware.memory_bandwidth, 1e9, NumberRange::positive, true},
                        {"ranks_per_node", &ranks, 1, NumberRange::positive, true},
                        {"threads_per_rank", &threads, 1, NumberRange::positive, false}});
    hardware.ranks_per_node = static_cast<int>(ranks);
    hardware.threads_per_rank = static_cast<int>(threads);
    if (ranks != std::floor(ranks)) issue(nullptr, "compute.ranks_per_node: a whole number");
    if (threads != std::floor(threads)) issue(nullptr, "compute.threads_per_rank: a whole number");
    if (hardware.reserved_bytes > 0 && hardware.reserved_bytes >= hardware.memory_bytes) {
      issue(root_["compute"]["reserved_gib"].node(), "compute.reserved_gib leaves nothing of compute.memory_gib");
    }
    if (root_.contains("node") || ranks > 1) link("node", hardware.node);
    if (root_.contains("network")) link("network", hardware.network);
    read_measured(root_, hardware, issues);
    generations(hardware.software);
    if (!software.empty()) hardware.software_name = software;
    choose(hardware);
    if (!issues_.empty()) throw Error(ErrorKind::configuration, fmt::format("{}", fmt::join(issues_, "\n")));
    return hardware;
  }

 private:
  void issue(const toml::node* node, const std::string& message) {
    const toml::source_position at = node != nullptr ? node->source().begin : toml::source_position{1, 1};
    issues_.push_back(fmt::format("{}:{}:{}: error: {}", name_, at.line, at.column, message));
  }

  void check_keys(const toml::table& table, const std::string& prefix, const std::vector<std::string>& known) {
    check_known_keys(table, prefix, known,
                     [this](const toml::node* node, const std::string& text) { issue(node, text); });
  }

  void text(const toml::table& table, const char* key, std::string& to, bool required) {
    const toml::node* node = table.get(key);
    if (node == nullptr) {
      if (required) issue(nullptr, fmt::format("{}: is missing", key));
    } else if (const auto value = node->value_exact<std::string>()) {
      to = *value;
    } else {
      issue(node, fmt::format("{}: a string is expected", key));
    }
  }

  void number(const toml::table& table, const std::string& prefix, const NumberKey& key) {
    const toml::node* node = table.get(key.name);
    if (node == nullptr) {
      if (key.required) issue(&table, fmt::format("{}{}: is missing", prefix, key.name));
      return;
    }
    const auto value = node->is_number() ? node->value<double>() : std::nullopt;
    if (!value) return issue(node, fmt::format("{}{}: a number is expected", prefix, key.name));
    const bool share = key.range == NumberRange::share || key.range == NumberRange::share_from_zero,
               zero = key.range == NumberRange::from_zero || key.range == NumberRange::share_from_zero;
    const double most = share ? 1 : kLargestNumber;
    if (!(zero ? *value >= 0 : *value > 0) || *value > most) {
      return issue(node, fmt::format("{}{} = {} is out of range: {}, at most {}", prefix, key.name, *value,
                                     zero ? "at least 0" : "above 0", most));
    }
    *key.to = *value * key.unit;
  }

  const toml::table* sub_table(const char* name, bool required) {
    const toml::node* node = root_.get(name);
    if (node == nullptr && required) issue(nullptr, fmt::format("the table [{}] is missing", name));
    if (node != nullptr && !node->is_table()) issue(node, fmt::format("[{}] is a table", name));
    return node == nullptr ? nullptr : node->as_table();
  }

  void numbers(const char* name, const std::vector<NumberKey>& keys) {
    const toml::table* table = sub_table(name, true);
    if (table == nullptr) return;
    std::vector<std::string> known;
    for (const NumberKey& key : keys) known.emplace_back(key.name);
    check_keys(*table, fmt::format("{}.", name), known);
    for (const NumberKey& key : keys) number(*table, fmt::format("{}.", name), key);
  }

  void link(const char* name, LinkLevel& level) {
    numbers(name, {{"gb_per_second", &level.bandwidth, 1e9, NumberRange::positive, true},
                   {"latency_us", &level.latency, 1e-6, NumberRange::from_zero, true}});
  }

  void generations(std::map<std::string, Software>& to) {
    const toml::table* tables = sub_table("software", true);
    if (tables == nullptr) return;
    for (auto&& [key, node] : *tables) {
      const std::string name(key.str()), prefix = "software." + name + ".";
      const toml::table* table = node.as_table();
      if (table == nullptr) {
        issue(&node, fmt::format("[software.{}] is a table", name));
        continue;
      }
      Software& one = to[name];
      const std::vector<NumberKey> keys = {
          {"product_efficiency", &one.product_efficiency, 1, NumberRange::share, true},
          {"product_half", &one.product_half, 1, NumberRange::from_zero, false},
          {"attention_efficiency", &one.attention_efficiency, 1, NumberRange::share, true},
          {"attention_score_passes", &one.attention_score_passes, 1, NumberRange::from_zero, false},
          {"memory_efficiency", &one.memory_efficiency, 1, NumberRange::share, true},
          {"launch_us", &one.launch, 1e-6, NumberRange::from_zero, false},
          {"node_efficiency", &one.node_efficiency, 1, NumberRange::share, true},
          {"network_efficiency", &one.network_efficiency, 1, NumberRange::share, true},
          {"tensor_overlap", &one.tensor_overlap, 1, NumberRange::share_from_zero, false}};
      const FlagKey flags[] = {{"copies_overlap", &one.copies_overlap},
                               {"tensor_blocking", &one.tensor_blocking},
                               {"scatter_gather", &one.scatter_gather},
                               {"blocking_transfers", &one.blocking_transfers}};
      std::vector<std::string> known;
      for (const NumberKey& number_key : keys) known.emplace_back(number_key.name);
      for (const FlagKey& flag : flags) known.emplace_back(flag.name);
      check_keys(*table, prefix, known);
      for (const NumberKey& number_key : keys) number(*table, prefix, number_key);
      for (const FlagKey& flag : flags) this->flag(*table, prefix, flag);
    }
  }

  void flag(const toml::table& table, const std::string& prefix, const FlagKey& key) {
    const toml::node* node = table.get(key.name);
    if (node == nullptr) return;
    if (const auto value = node->value_exact<bool>()) {
      *key.to = *value;
    } else {
      issue(node, fmt::format("{}{}: true or false is expected", prefix, key.name));
    }
  }

  void choose(Hardware& hardware) {
    const auto found = hardware.software.find(hardware.software_name);
    if (found != hardware.software.end()) {
      hardware.used = found->second;
      return;
    }
    std::vector<std::string> names;
    for (const auto& [name, one] : hardware.software) names.push_back(name);
    if (root_.contains("software_used") || !hardware.software_name.empty()) {  // else that is what is missing
      issue(root_["software_used"].node(), fmt::format("there is no [software.{}] here; there is: {}",
                                                       hardware.software_name, fmt::join(names, ", ")));
    }
  }

  const toml::table& root_;
  std::string name_;
  std::vector<std::string> issues_;
};

}  // namespace

Hardware parse_hardware(const std::string& text, const std::string& name, const std::string& software) {
  auto problem = check_text(text);
  if (!problem) problem = find_stray_character(text);
  if (problem) {
    fail(ErrorKind::configuration, "{}:{}:{}: error: {}", name, problem->line, problem->column, problem->message);
  }
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(ErrorKind::configuration, "{}:{}:{}: error: {}", name, error.source().begin.line, error.source().begin.column,
         error.description());
  }
  return HardwareReader(root, name).read(software);
}

Hardware read_hardware(const std::string& name_or_path, const std::string& software) {
  if (name_or_path.find('/') == std::string::npos && !name_or_path.ends_with(".toml")) {
    std::vector<std::string> names;
    for (const ShippedFile& one : shipped_hardware()) {
      if (one.name == name_or_path) {
        return parse_hardware(std::string(one.text), fmt::format("inputs/hardware/{}.toml", one.name), software);
      }
      names.emplace_back(one.name);
    }
    const auto longer = std::find_if(names.begin(), names.end(),
                                     [&](const std::string& name) { return name.starts_with(name_or_path + "-"); });
    std::string near = longer != names.end() ? *longer : suggest_choice(name_or_path, names);
    if (!near.empty() && near.front() != name_or_path.front()) near.clear();  // a v100 is no slip of an h200
    fail(ErrorKind::configuration,
         "--hardware {}: no such machine is known{}; give one of {}, or the path of a file (NAME.toml)", name_or_path,
         near.empty() ? "" : fmt::format(" (did you mean {}?)", near), fmt::join(names, ", "));
  }
  const RegularFile file(name_or_path, ErrorKind::configuration);
  verify(file.bytes() <= kMaxInputBytes, ErrorKind::configuration, "{}: {} bytes are more than a hardware file has",
         name_or_path, file.bytes());
  std::string text(file.bytes(), '\0');
  file.read(0, text.data(), text.size());
  return parse_hardware(text, name_or_path, software);
}

}  // namespace megatron
