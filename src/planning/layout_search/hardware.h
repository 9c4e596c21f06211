// Hardware: what a planner knows of a machine: rates, memory, links, and how well a software generation uses them. Read
// from TOML (inputs/hardware, whose files say where their numbers are from); three machines are part of the program.
//
// Rates are of one rank's device. Efficiencies belong to software, not to machines: a file has one table for each
// generation of programs, and clocks use one of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/core/dtype.h"
#include "base/text/shipped_file.h"
#include "planning/layout_search/measured_rates.h"

namespace megatron {

/// A level of the network as one rank sees it, in one direction.
struct LinkLevel {
  double bandwidth = 0;  ///< bytes per second
  double latency = 0;    ///< seconds of each step of an operation
};

/// How well programs of one generation use the machine. Shares are of the machine's peaks.
struct Software {
  double product_efficiency = 1;  ///< for large products
  double product_half = 0;        ///< a product whose smallest dimension is this runs at half of that
  double attention_efficiency = 1;
  double attention_score_passes =
      0;                         ///< times that unfused attention reads or writes the scores in a forward; 0: fused
  double memory_efficiency = 1;  ///< share of memory's bandwidth, in operations that compute little
  double launch = 0;             ///< seconds of each operation in addition
  double node_efficiency = 1, network_efficiency = 1;
  double tensor_overlap = 0;        ///< share of the tensor group's communication that runs under products
  bool tensor_blocking = false;     ///< it is waited for where it is started, whatever the program's order
  bool copies_overlap = true;       ///< gradient sums and parameter gathers run while the rank computes
  bool scatter_gather = false;      ///< tensor ranks send a part of a stage's output each, and gather it in the node
  bool blocking_transfers = false;  ///< a stage computes nothing while it sends or receives
};

struct Hardware {
  std::string name;
  std::string device = "cuda";                  ///< run.device of the runs that are planned
  double flops_16bit = 0, flops_32bit = 0;      ///< peak, per second
  double memory_bytes = 0, reserved_bytes = 0;  ///< per device; the part that driver and libraries take
  double memory_bandwidth = 0;                  ///< bytes per second
  int ranks_per_node = 1;
  int threads_per_rank = 0;  ///< that the rates were measured with; 0: the file does not say
  LinkLevel node, network;   ///< between ranks of a node; between nodes, of each rank: 0 where one node is known
  MeasuredRates rates_16bit = {}, rates_32bit = {};  ///< in place of peaks and efficiencies, where there are any
  MeasuredLinks links = {};
  std::map<std::string, Software> software = {};
  std::string software_name;  ///< name of `used`
  Software used;              ///< the generation that clocks go by

  double peak(DType type) const { return type == DType::f32 ? flops_32bit : flops_16bit; }
  const MeasuredRates& rates(DType type) const { return type == DType::f32 ? rates_32bit : rates_16bit; }
  double usable_bytes() const { return memory_bytes - reserved_bytes; }
};

/// From text; `name` stands for the file in messages. `software`: the generation to use; "": the file's.
/// Throws one Error(configuration) with a line for everything that is wrong.
Hardware parse_hardware(const std::string& text, const std::string& name, const std::string& software = "");

/// The text of a file that parse_hardware() reads as this machine. `comment`: its first lines, without their signs.
std::string print_hardware(const Hardware& hardware, const std::string& comment);

/// By the name of a machine that is part of the program ("h100-sxm"), or the path of a file, which has a '/' or ends in
/// ".toml".
Hardware read_hardware(const std::string& name_or_path, const std::string& software = "");

/// Files of inputs/hardware: made from them by CMake.
const std::vector<ShippedFile>& shipped_hardware();

}  // namespace megatron
