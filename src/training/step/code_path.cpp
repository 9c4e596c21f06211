#include "training/step/code_path.h"

#include <fmt/ranges.h>

#include <map>
#include <set>
#include <utility>

#include "backend/cpu/code_path.h"
#include "backend/cpu/half_products.h"
#include "base/core/error.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/gather.h"

namespace megatron {

namespace {

using HostAndProducts = std::pair<std::string, std::string>;

/// "" where all are equal.
std::string different_products(const std::vector<HostAndProducts>& ranks) {
  std::map<std::string, std::set<std::string>> hosts_of;
  for (const auto& [host, products] : ranks) hosts_of[products].insert(host);
  if (hosts_of.size() < 2) return "";
  std::string text = "processors multiply bf16 in different ways, which no two ranks of a job may:";
  for (const auto& [products, hosts] : hosts_of) text += fmt::format("\n  {} on {}", products, fmt::join(hosts, " "));
  return text +
         "\nuse equal hosts, or run.native_16bit = \"off\", or ONEDNN_MAX_CPU_ISA, set to the least of them for all "
         "ranks";
}

}  // namespace

std::string chosen_code_path() {
  return code_path();
}

std::string chosen_half_products(Native16Bit wanted) {
  return name_of(choose_half_products(wanted, processor_features()));
}

Native16Bit native_16bit_here(Native16Bit wanted) {
  return possible_native_16bit(wanted, processor_features());
}

void require_same_half_products(Communicator& world, const std::string& host, const std::string& products) {
  const std::vector<HostAndProducts> ranks = gather(world, HostAndProducts(host, products));
  const std::string different = world.broadcast_text(world.rank() == 0 ? different_products(ranks) : "", 0);
  if (!different.empty()) throw AgreedError(ErrorKind::configuration, different);
}

}  // namespace megatron
