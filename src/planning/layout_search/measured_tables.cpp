#include "planning/layout_search/measured_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "config/schema/suggestions.h"

namespace megatron {

namespace {

class MeasuredReader {
 public:
  MeasuredReader(const toml::table& root, const IssueSink& issue) : root_(root), issue_(issue) {}

  void read(Hardware& hardware) {
    if (const toml::node* node = root_.get("products")) {
      products(*node, "products", hardware.rates_16bit.products.front());
      hardware.rates_32bit.products.front() = hardware.rates_16bit.products.front();
    }
    rates("rates_16bit", hardware.rates_16bit);
    rates("rates_32bit", hardware.rates_32bit);
    links(hardware.links);
  }

 private:
  const toml::table* table(const toml::table& in, const std::string& prefix, const char* key) {
    const toml::node* node = in.get(key);
    if (node != nullptr && !node->is_table()) issue_(node, fmt::format("[{}{}] is a table", prefix, key));
    return node == nullptr ? nullptr : node->as_table();
  }

  // Each row is as many numbers above 0 as `columns` names, and no two differ in the last one alone.
  std::vector<std::vector<double>> rows(const toml::node& node, const std::string& key,
                                        const std::vector<std::string>& columns) {
    std::vector<std::vector<double>> found;
    std::set<std::vector<double>> sizes;
    const std::string form = fmt::format("[{}]", fmt::join(columns, ", "));
    const toml::array* const all = node.as_array();
    if (all == nullptr || all->empty()) {
      issue_(&node, fmt::format("{}: an array of {} is expected", key, form));
      return found;
    }
    for (const toml::node& row : *all) {
      const toml::array* values = row.as_array();
      std::vector<double> numbers;
      for (std::size_t i = 0; values != nullptr && i < values->size(); ++i) {
        numbers.push_back((*values)[i].value<double>().value_or(0));
      }
      const auto in_range = [](double number) { return number > 0 && number <= kLargestNumber; };
      if (numbers.size() != columns.size() || !std::all_of(numbers.begin(), numbers.end(), in_range)) {
        issue_(&row, fmt::format("{}: each is {}, {} numbers above 0, at most {}", key, form, columns.size(),
                                 kLargestNumber));
      } else if (columns.front() == "ranks" && numbers.front() != std::floor(numbers.front())) {
        issue_(&row, fmt::format("{}: {} ranks; a whole number is expected", key, numbers.front()));
      } else if (!sizes.insert({numbers.begin(), numbers.end() - 1}).second) {
        issue_(&row, fmt::format("{}: a second row of these sizes; keep one", key));
      } else {
        found.push_back(std::move(numbers));
      }
    }
    return found;
  }

  void products(const toml::node& node, const std::string& key, RateTable<3>& to) {
    to = {};
    for (const auto& row : rows(node, key, {"rows", "columns", "inner", "tflops"})) {
      to.set({row[0], row[1], row[2]}, row[3] * 1e12);
    }
  }

  void attention(const toml::node& node, const std::string& key, RateTable<2>& to) {
    for (const auto& row : rows(node, key, {"length", "head_size", "tflops"})) to.set({row[0], row[1]}, row[2] * 1e12);
  }

  void seconds(const toml::node& node, const std::string& key, SecondsByBytes& to) {
    for (const auto& row : rows(node, key, {"bytes", "microseconds"})) to.set(row[0], row[1] * 1e-6);
  }

  void rates(const char* name, MeasuredRates& to) {
    const toml::table* const rates = table(root_, "", name);
    if (rates == nullptr) return;
    const std::string prefix = std::string(name) + ".";
    std::vector<std::string> known(std::begin(kProductKeys), std::end(kProductKeys));
    known.insert(known.end(), std::begin(kAttentionKeys), std::end(kAttentionKeys));
    known.emplace_back("operations");
    check_known_keys(*rates, prefix, known, issue_);
    for (std::size_t kind = 0; kind < kProductKinds; ++kind) {
      if (const toml::node* node = rates->get(kProductKeys[kind])) {
        products(*node, prefix + kProductKeys[kind], to.products[kind]);
      }
    }
    for (std::size_t kind = 0; kind < kAttentionKinds; ++kind) {
      if (const toml::node* node = rates->get(kAttentionKeys[kind])) {
        attention(*node, prefix + kAttentionKeys[kind], to.attention[kind]);
      }
    }
    if (const toml::table* const others = table(*rates, prefix, "operations")) {
      for (auto&& [key, node] : *others) {
        const std::string operation(key.str());
        seconds(node, prefix + "operations." + operation, to.others[operation]);
      }
    }
  }

  void links(MeasuredLinks& to) {
    const toml::table* const links = table(root_, "", "links");
    if (links == nullptr) return;
    std::vector<std::string> known(std::begin(kCollectiveKeys), std::end(kCollectiveKeys));
    known.emplace_back("messages");
    check_known_keys(*links, "links.", known, issue_);
    if (const toml::node* node = links->get("messages")) seconds(*node, "links.messages", to.messages);
    for (const char* const key : kCollectiveKeys) {
      const toml::node* const node = links->get(key);
      if (node == nullptr) continue;
      for (const auto& row : rows(*node, fmt::format("links.{}", key), {"ranks", "bytes", "microseconds"})) {
        to.collectives[key][static_cast<int>(row[0])].set(row[1], row[2] * 1e-6);
      }
    }
  }

  const toml::table& root_;
  const IssueSink& issue_;
};

}  // namespace

void check_known_keys(const toml::table& table, const std::string& prefix, const std::vector<std::string>& known,
                      const IssueSink& issue) {
  for (auto&& [key, value] : table) {
    const std::string name(key.str());
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string near = suggest_choice(name, known);
    issue(&value, fmt::format("unknown key '{}{}'; {}", prefix, name,
                              near.empty() ? fmt::format("the keys here are {}", fmt::join(known, ", "))
                                           : fmt::format("did you mean '{}'?", near)));
  }
}

void read_measured(const toml::table& root, Hardware& hardware, const IssueSink& issue) {
  MeasuredReader(root, issue).read(hardware);
}

}  // namespace megatron
