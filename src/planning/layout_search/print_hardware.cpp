// A machine as the text of its hardware file.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "planning/layout_search/measured_tables.h"

namespace megatron {

namespace {

class HardwarePrinter {
 public:
  std::string print(const Hardware& hardware, const std::string& comment) {
    std::istringstream lines(comment);
    for (std::string line; std::getline(lines, line);) put("# {}\n", line);
    put("name = \"{}\"\ndevice = \"{}\"\nsoftware_used = \"{}\"\n", hardware.name, hardware.device,
        hardware.software_name);
    put("\n[compute]\n");
    number("tflops_16bit", hardware.flops_16bit / 1e12);
    number("tflops_32bit", hardware.flops_32bit / 1e12);
    number("memory_gib", hardware.memory_bytes / (1 << 30));
    number("reserved_gib", hardware.reserved_bytes / (1 << 30));
    number("memory_gb_per_second", hardware.memory_bandwidth / 1e9);
    number("ranks_per_node", hardware.ranks_per_node);
    if (hardware.threads_per_rank > 0) number("threads_per_rank", hardware.threads_per_rank);
    if (hardware.node.bandwidth > 0) link("node", hardware.node);
    if (hardware.network.bandwidth > 0) link("network", hardware.network);
    for (const auto& [name, one] : hardware.software) software(name, one);
    rates("rates_32bit", hardware.rates_32bit);
    rates("rates_16bit", hardware.rates_16bit);
    links(hardware.links);
    return std::move(text_);
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  void number(const char* key, double value) { put("{} = {:.6g}\n", key, value); }
  void flag(const char* key, bool value) { put("{} = {}\n", key, value); }

  void link(const char* name, const LinkLevel& level) {
    put("\n[{}]\n", name);
    number("gb_per_second", level.bandwidth / 1e9);
    number("latency_us", level.latency * 1e6);
  }

  void software(const std::string& name, const Software& one) {
    put("\n[software.{}]\n", name);
    number("product_efficiency", one.product_efficiency);
    number("product_half", one.product_half);
    number("attention_efficiency", one.attention_efficiency);
    number("attention_score_passes", one.attention_score_passes);
    number("memory_efficiency", one.memory_efficiency);
    number("launch_us", one.launch * 1e6);
    number("node_efficiency", one.node_efficiency);
    number("network_efficiency", one.network_efficiency);
    number("tensor_overlap", one.tensor_overlap);
    flag("tensor_blocking", one.tensor_blocking);
    flag("copies_overlap", one.copies_overlap);
    flag("scatter_gather", one.scatter_gather);
    flag("blocking_transfers", one.blocking_transfers);
  }

  template <std::size_t N>
  void table(const char* key, const RateTable<N>& rates) {
    if (rates.empty()) return;
    put("{} = [\n", key);
    for (const auto& [sizes, rate] : rates.rows()) {
      put("  [");
      for (const double size : sizes) put("{:.10g}, ", size);
      put("{:.4g}],\n", rate / 1e12);
    }
    put("]\n");
  }

  void curve(const std::string& key, const SecondsByBytes& seconds) {
    put("{} = [", key);
    for (const auto& [bytes, each] : seconds.points()) put("[{:.10g}, {:.4g}], ", bytes, each * 1e6);
    put("]\n");
  }

  void rates(const char* name, const MeasuredRates& all) {
    const auto is_empty = [](const auto& rates) { return rates.empty(); };
    if (all.others.empty() && std::all_of(all.products.begin(), all.products.end(), is_empty) &&
        std::all_of(all.attention.begin(), all.attention.end(), is_empty)) {
      return;
    }
    put("\n[{}]\n", name);
    for (std::size_t kind = 0; kind < kAttentionKinds; ++kind) table(kAttentionKeys[kind], all.attention[kind]);
    for (std::size_t kind = 0; kind < kProductKinds; ++kind) table(kProductKeys[kind], all.products[kind]);
    if (!all.others.empty()) put("\n[{}.operations]\n", name);
    for (const auto& [operation, seconds] : all.others) curve(operation, seconds);
  }

  void links(const MeasuredLinks& all) {
    if (all.collectives.empty() && all.messages.empty()) return;
    put("\n[links]\n");
    if (!all.messages.empty()) curve("messages", all.messages);
    for (const auto& [name, by_ranks] : all.collectives) {
      put("{} = [\n", name);
      for (const auto& [ranks, seconds] : by_ranks) {
        for (const auto& [bytes, each] : seconds.points()) put("  [{}, {:.10g}, {:.4g}],\n", ranks, bytes, each * 1e6);
      }
      put("]\n");
    }
  }

  std::string text_;
};

}  // namespace

std::string print_hardware(const Hardware& hardware, const std::string& comment) {
  return HardwarePrinter().print(hardware, comment);
}

}  // namespace megatron
