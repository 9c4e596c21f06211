// Hardware files: the three that are shipped, and what is said of bad ones.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/core/error.h"
#include "planning/layout_search/hardware.h"
#include "support/catch.h"

using namespace megatron;

namespace {

constexpr const char* kGood = R"(name = "toy"
device = "cuda"
software_used = "ours"
[compute]
tflops_16bit = 100
tflops_32bit = 10
memory_gib = 16
memory_gb_per_second = 1000
ranks_per_node = 4
[node]
gb_per_second = 100
latency_us = 1
[network]
gb_per_second = 10
latency_us = 5
[software.ours]
product_efficiency = 0.5
attention_efficiency = 0.25
memory_efficiency = 1
node_efficiency = 1
network_efficiency = 0.5
)";

std::string with(const std::string& old, const std::string& replacement) {
  std::string text = kGood;
  return text.replace(text.find(old), old.size(), replacement);
}

std::string problem(const std::string& text, const std::string& software = "") {
  try {
    parse_hardware(text, "toy.toml", software);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::configuration);
    return error.what();
  }
  return "";
}

bool mentions(const std::string& text, const std::string& words) {
  INFO(text);
  return text.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("a hardware file: numbers in the units of its keys") {
  const Hardware toy = parse_hardware(kGood, "toy.toml");
  CHECK(toy.flops_16bit == 1e14);
  CHECK(toy.peak(DType::f32) == 1e13);
  CHECK(toy.memory_bytes == 16.0 * (1 << 30));
  CHECK(toy.usable_bytes() == toy.memory_bytes);
  CHECK(toy.memory_bandwidth == 1e12);
  CHECK(toy.ranks_per_node == 4);
  CHECK(toy.node.bandwidth == 1e11);
  CHECK(toy.network.latency == Approx(5e-6));
  CHECK(toy.used.product_efficiency == 0.5);
  CHECK(toy.used.network_efficiency == 0.5);
  CHECK(toy.rates_16bit.products.front().empty());
}

TEST_CASE("a hardware file: products without a type are of both") {
  const Hardware toy =
      parse_hardware("products = [[1, 2, 3, 0.5], [64, 64, 64, 1]]\n" + std::string(kGood), "toy.toml");
  for (const DType type : {DType::f32, DType::bf16}) {
    const RateTable<3>& products = toy.rates(type).of(ProductKind::weight_gradient);
    REQUIRE(products.rows().size() == 2);
    CHECK(products.rows().at({1, 2, 3}) == 5e11);
  }
  CHECK(mentions(problem("products = [[1, 2, 3]]\n" + std::string(kGood)), "toy.toml:1:13: error: products: each is"));
}

TEST_CASE("a hardware file: measured tables") {
  const Hardware toy = parse_hardware(std::string(kGood) + R"(
[rates_32bit]
products = [[1, 2, 3, 0.5]]
products_weight_gradient = [[1, 2, 3, 0.25]]
attention_forward = [[64, 32, 1]]
attention_backward_drawn = [[64, 32, 2]]
[rates_32bit.operations]
adamw = [[100, 5], [1000, 20]]
[links]
messages = [[256, 1.5]]
all_reduce = [[2, 256, 3], [4, 256, 6]]
)",
                                      "toy.toml");
  CHECK(toy.rates_16bit.products.front().empty());
  const MeasuredRates& rates = toy.rates_32bit;
  CHECK(rates.of(ProductKind::forward).at({1, 2, 3}) == Approx(5e11));
  CHECK(rates.of(ProductKind::input_gradient).at({1, 2, 3}) == Approx(5e11));
  CHECK(rates.of(ProductKind::weight_gradient).at({1, 2, 3}) == Approx(2.5e11));
  CHECK(rates.of(AttentionKind::forward).at({64, 32}) == Approx(1e12));
  CHECK(rates.of(AttentionKind::backward_drawn).at({64, 32}) == Approx(2e12));
  CHECK(rates.of(AttentionKind::backward).empty());
  CHECK(rates.others.at("adamw").at(1000) == Approx(20e-6));
  CHECK(toy.links.messages.at(256) == Approx(1.5e-6));
  CHECK(toy.links.collectives.at("all_reduce").at(4).at(256) == Approx(6e-6));
}

TEST_CASE("a hardware file: damaged tables are named by line") {
  const auto in_table = [](const std::string& lines) { return problem(std::string(kGood) + lines); };
  const std::size_t line = 1 + static_cast<std::size_t>(std::count(kGood, kGood + std::strlen(kGood), '\n'));
  const auto at = [&](std::size_t more, const char* message) {
    return fmt::format("toy.toml:{}{}", line + more, message);
  };
  CHECK(mentions(in_table("[rates_16bit]\nproducts = [\n  [1, 2, 3, 4],\n  [1, 2, 3],\n]\n"),
                 at(3, ":3: error: rates_16bit.products: each is [rows, columns, inner, tflops], 4 numbers above 0")));
  CHECK(mentions(in_table("[rates_16bit]\nproduct = 1\n"),
                 at(1, ":11: error: unknown key 'rates_16bit.product'; did you mean 'products'?")));
  CHECK(mentions(in_table("[rates_32bit]\nattention_forward = [[64, -1, 2]]\n"),
                 at(1, ":22: error: rates_32bit.attention_forward: each is [length, head_size, tflops]")));
  CHECK(mentions(in_table("[rates_32bit]\nattention_backward = []\n"),
                 "rates_32bit.attention_backward: an array of [length, head_size, tflops] is expected"));
  CHECK(mentions(in_table("[rates_32bit.operations]\nadamw = [[1, 2], [nan, 2]]\n"),
                 at(1, ":18: error: rates_32bit.operations.adamw: each is [bytes, microseconds]")));
  CHECK(mentions(in_table("[rates_32bit]\noperations = 3\n"), "[rates_32bit.operations] is a table"));
  CHECK(mentions(in_table("[links]\nall_reduce = [[2, 256]]\n"),
                 "links.all_reduce: each is [ranks, bytes, microseconds], 3 numbers above 0"));
  CHECK(mentions(in_table("[links]\nall_reduce = [[2.5, 256, 1]]\n"),
                 at(1, ":15: error: links.all_reduce: 2.5 ranks; a whole number is expected")));
  CHECK(mentions(in_table("[links]\nall_reduce = [[2, 256, 1], [4, 256, 1], [2, 256, 3]]\n"),
                 at(1, ":41: error: links.all_reduce: a second row of these sizes; keep one")));
  CHECK(mentions(in_table("[links]\nall_reduces = [[2, 256, 1]]\n"), "did you mean 'all_reduce'?"));
  CHECK(mentions(in_table("[links]\nmessages = 5\n"), "links.messages: an array of [bytes, microseconds] is expected"));
}

TEST_CASE("a hardware file: what is printed parses as the same machine") {
  for (const ShippedFile& shipped : shipped_hardware()) {
    const Hardware machine = read_hardware(std::string(shipped.name));
    const std::string text = print_hardware(machine, "of a test\nand two lines");
    CHECK(text.starts_with("# of a test\n# and two lines\n"));
    const Hardware again = parse_hardware(text, "again.toml");
    CHECK(print_hardware(again, "of a test\nand two lines") == text);
    CHECK(again.name == machine.name);
    CHECK(again.flops_16bit == Approx(machine.flops_16bit));
    CHECK(again.network.latency == Approx(machine.network.latency));
    CHECK(again.software.size() == machine.software.size());
    CHECK(again.used.tensor_blocking == machine.used.tensor_blocking);
    CHECK(again.used.launch == Approx(machine.used.launch));
  }
}

TEST_CASE("hardware file: each measured table is printed whatever else there is") {
  for (const char* table :
       {"[rates_32bit]\nattention_backward = [[64, 32, 2]]\n",
        "[rates_16bit]\nproducts_weight_gradient = [[1048577, 2, 3, 0.25]]\n",
        "[rates_16bit.operations]\nadamw = [[1048577, 5]]\n", "[links]\nmessages = [[256, 1.5]]\n"}) {
    INFO(table);
    const Hardware machine = parse_hardware(std::string(kGood) + table, "toy.toml");
    const Hardware again = parse_hardware(print_hardware(machine, ""), "again.toml");
    CHECK(again.rates_32bit.of(AttentionKind::backward).rows() ==
          machine.rates_32bit.of(AttentionKind::backward).rows());
    for (std::size_t kind = 0; kind < kProductKinds; ++kind) {
      CHECK(again.rates_16bit.products[kind].rows() == machine.rates_16bit.products[kind].rows());
    }
    CHECK(again.rates_16bit.others.size() == machine.rates_16bit.others.size());
    for (const auto& [name, seconds] : machine.rates_16bit.others) {
      CHECK(again.rates_16bit.others.at(name).points() == seconds.points());
    }
    CHECK(again.links.messages.points() == machine.links.messages.points());
  }
}

TEST_CASE("a hardware file: what is wrong is named with its place, all at once") {
  CHECK(mentions(problem("x = ["), "toy.toml:1:"));
  CHECK(mentions(problem(with("tflops_16bit = 100", "tflops_16bits = 100")),
                 "toy.toml:5:17: error: unknown key 'compute.tflops_16bits'; did you mean 'tflops_16bit'?"));
  CHECK(mentions(problem(with("tflops_16bit = 100", "tflops_16bits = 100")), "compute.tflops_16bit: is missing"));
  CHECK(mentions(problem(with("memory_gib = 16", "memory_gib = -16")), "compute.memory_gib = -16 is out of range"));
  CHECK(mentions(problem(with("memory_gib = 16", "memory_gib = \"16\"")), "compute.memory_gib: a number is expected"));
  CHECK(mentions(problem(with("product_efficiency = 0.5", "product_efficiency = 1.5")),
                 "software.ours.product_efficiency = 1.5 is out of range: above 0, at most 1"));
  CHECK(mentions(problem(with("ranks_per_node = 4", "ranks_per_node = 4.5")), "a whole number"));
  CHECK(mentions(problem(with("device = \"cuda\"", "device = \"tpu\"")), "toy.toml:2:10: error: device"));
  CHECK(mentions(problem(with("[network]", "[net]")), "unknown key 'net'"));
  CHECK(mentions(problem(with("[node]", "[nodes]")), "the table [node] is missing"));
  CHECK(mentions(problem(with("latency_us = 5", "latency_us = inf")), "out of range"));
  CHECK(mentions(problem(with("latency_us = 5", "latency_us = nan")), "out of range"));
  CHECK(mentions(problem(kGood, "theirs"), "there is no [software.theirs] here; there is: ours"));
  CHECK(mentions(problem(with("software_used = \"ours\"", "software_used = \"\"")), "there is no [software.] here"));
  CHECK(mentions(problem(with("memory_gib = 16", "memory_gib = 16\nreserved_gib = 16")),
                 "toy.toml:8:16: error: compute.reserved_gib leaves nothing of compute.memory_gib"));
  CHECK(mentions(problem("products = [[1, 2, 3, inf]]\n" + std::string(kGood)), "4 numbers above 0, at most"));
}

TEST_CASE("hardware file: too deep nesting is refused before it is parsed") {
  std::string dotted = "a", brackets;
  for (int i = 0; i < 200'000; ++i) dotted += ".a";
  brackets.append(200'000, '[');
  CHECK(mentions(problem(dotted + " = 1\n"), "toy.toml:1:"));
  CHECK(mentions(problem("products = " + brackets), "toy.toml:1:"));
}

TEST_CASE("hardware file: shipped machines can be read in each generation") {
  CHECK(shipped_hardware().size() == 3);
  for (const ShippedFile& shipped : shipped_hardware()) {
    CAPTURE(shipped.name);
    const Hardware hardware = read_hardware(std::string(shipped.name));
    CHECK(hardware.ranks_per_node == 8);
    CHECK(hardware.usable_bytes() > 70.0 * (1 << 30));
    for (const auto& [name, software] : hardware.software) {
      CHECK(read_hardware(std::string(shipped.name), name).software_name == name);
    }
  }
  CHECK_THROWS_WITH(read_hardware("v100"), Contains("--hardware v100: no such machine is known; give one of a100-sxm"));
  CHECK_THROWS_AS(read_hardware("no/such/file.toml"), Error);
}
