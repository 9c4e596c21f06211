// Hardware files: the three that are shipped, and what is said of bad ones.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "planner/hardware.h"

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
  CHECK(toy.products.empty());
}

TEST_CASE("a hardware file: measured products") {
  const Hardware toy =
      parse_hardware("products = [[1, 2, 3, 0.5], [64, 64, 64, 1]]\n" + std::string(kGood), "toy.toml");
  REQUIRE(toy.products.size() == 2);
  CHECK(toy.products[0].inner == 3);
  CHECK(toy.products[0].flops_per_second == 5e11);
  CHECK(mentions(problem("products = [[1, 2, 3]]\n" + std::string(kGood)), "toy.toml:1:13: error: products: each is"));
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
  CHECK(mentions(problem(with("[network]", "[net]")), "the table [network] is missing"));
  CHECK(mentions(problem(with("latency_us = 5", "latency_us = inf")), "out of range"));
  CHECK(mentions(problem(with("latency_us = 5", "latency_us = nan")), "out of range"));
  CHECK(mentions(problem(kGood, "theirs"), "there is no [software.theirs] here; there is: ours"));
  CHECK(mentions(problem(with("software_used = \"ours\"", "software_used = \"\"")), "there is no [software.] here"));
  CHECK(mentions(problem(with("memory_gib = 16", "memory_gib = 16\nreserved_gib = 16")),
                 "toy.toml:8:16: error: compute.reserved_gib leaves nothing of compute.memory_gib"));
  CHECK(mentions(problem("products = [[1, 2, 3, inf]]\n" + std::string(kGood)), "four numbers above 0, at most"));
}

TEST_CASE("a hardware file: nesting that a parser's stack does not survive is refused before it parses") {
  std::string dotted = "a", brackets;
  for (int i = 0; i < 200'000; ++i) dotted += ".a";
  brackets.append(200'000, '[');
  CHECK(mentions(problem(dotted + " = 1\n"), "toy.toml:1:"));
  CHECK(mentions(problem("products = " + brackets), "toy.toml:1:"));
}

TEST_CASE("the shipped machines can be read, under each of their software generations") {
  CHECK(shipped_hardware().size() == 3);
  for (const ShippedHardware& shipped : shipped_hardware()) {
    CAPTURE(shipped.name);
    const Hardware hardware = read_hardware(std::string(shipped.name));
    CHECK(hardware.ranks_per_node == 8);
    CHECK(hardware.usable_bytes() > 70.0 * (1 << 30));
    for (const auto& [name, software] : hardware.software) {
      CHECK(read_hardware(std::string(shipped.name), name).software_name == name);
    }
  }
  CHECK_THROWS_WITH(read_hardware("v100"),
                    Catch::Contains("--hardware v100: no such machine is known; give one of a100-sxm"));
  CHECK_THROWS_AS(read_hardware("no/such/file.toml"), Error);
}
