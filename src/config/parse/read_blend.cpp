#include "config/parse/read_blend.h"

#include <fmt/format.h>

#include <set>

#include "base/text/expand_path.h"
#include "config/parse/read_value.h"
#include "config/parse/text_checks.h"

namespace megatron {
namespace {

constexpr double kLargestWeight = 1e15;  // so that weights have a sum

class BlendReader {
 public:
  explicit BlendReader(const std::string& name) : name_(name) {}

  std::string read(const toml::array& parts, std::vector<BlendPart>& blend) {
    for (const toml::node& node : parts) {
      const std::string part = fmt::format("{}[{}]", name_, blend.size());
      BlendPart& entry = blend.emplace_back();
      if (node.is_string()) {
        read_path(node, part, entry.path);
      } else {
        read_part(node, part, entry);
      }
      if (!problem_.empty()) return problem_;
    }
    if (blend.empty()) set(fmt::format("{} is an empty array; name at least one set", name_));
    check_set_names(blend);
    return problem_;
  }

 private:
  void set(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  void read_path(const toml::node& node, const std::string& part, std::string& path) {
    path = node.value_exact<std::string>().value_or("");
    if (path.empty()) return set(fmt::format("{}: expected a path", part));
    const std::string trouble = expand_path(path);
    if (!trouble.empty()) set(fmt::format("{}: {}", part, trouble));
  }

  void read_part(const toml::node& node, const std::string& part, BlendPart& entry) {
    const toml::table* table = node.as_table();
    const toml::node* weight = table == nullptr ? nullptr : table->get("weight");
    const toml::node* given_name = table == nullptr ? nullptr : table->get("name");
    const std::size_t members = 1 + (weight != nullptr ? 1 : 0) + (given_name != nullptr ? 1 : 0);
    if (table == nullptr || !table->contains("path") || table->size() != members) {
      return set(fmt::format("{}: expected a path or {{name = \"...\", path = \"...\", weight = ...}}, got {}", part,
                             megatron::type_name(node)));
    }
    read_path(*table->get("path"), part + ".path", entry.path);
    if (given_name != nullptr) read_set_name(*given_name, part + ".name", entry.name);
    if (weight == nullptr) return;  // 1
    if (!weight->is_number())
      return set(fmt::format("{}.weight: expected number, got {}", part, megatron::type_name(*weight)));
    entry.weight = *weight->value<double>();
    if (!(entry.weight > 0) || entry.weight > kLargestWeight) {
      set(fmt::format("{}.weight = {} is out of range: above 0, at most {}", part, entry.weight, kLargestWeight));
    }
  }

  void read_set_name(const toml::node& node, const std::string& part, std::string& set_name) {
    set_name = node.value_exact<std::string>().value_or("");
    if (set_name.empty() || set_name.size() > 64 || set_name.find_first_of("/\n\r\t") != std::string::npos) {
      set(fmt::format("{}: expected a name of at most 64 bytes in one line and without /", part));
    }
  }

  void check_set_names(const std::vector<BlendPart>& blend) {
    std::set<std::string> names;
    for (const BlendPart& part : blend) {
      if (part.name.empty() != blend.front().name.empty()) {
        return set(fmt::format("{}: either every set has a name, or none has", name_));
      }
      if (!part.name.empty() && !names.insert(part.name).second) {
        return set(fmt::format("{}: two sets have the name \"{}\"", name_, part.name));
      }
    }
  }

  const std::string& name_;
  std::string problem_;
};

}  // namespace

std::string read_blend(const toml::array& parts, const std::string& name, std::vector<BlendPart>& blend) {
  return BlendReader(name).read(parts, blend);
}

}  // namespace megatron
