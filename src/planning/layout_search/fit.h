// --fit: the cheapest way to bring a run, laid out as its file says, under a number of bytes per rank. It tries what
// costs time instead of ranks, in all combinations: the size of micro-batches, recomputation, chunks of the head, where
// the optimizer's state is and in which type. Each is played, as search_layouts() plays layouts: memory to the byte,
// time by the same clock.
#pragma once

#include <string>
#include <vector>

#include "planning/dry_run/time_estimate.h"
#include "planning/layout_search/search.h"

namespace megatron {

/// Bytes of "16GiB", "512 MiB" or a number alone; units are powers of 1024 from KiB to TiB. Error(configuration) of any
/// other text.
double parse_bytes(const std::string& text);

/// This machine's ranks, as far as a plan measures them: products, and memory that no cache holds.
Hardware hardware_here(const Config& config, const MachineSpeed& speed, int ranks);

struct FitChoice {
  Config config;  ///< as the input file would say it: not resolved
  std::size_t bytes = 0;
  double seconds = 0;  ///< a step
};

struct Fit {
  double limit = 0;
  FitChoice file;                     ///< as it is
  std::vector<FitChoice> fitting;     ///< the cheapest first; with states in files, and then with moments in 16 bits,
                                      ///< only if none fits without
  std::vector<FitChoice> one_by_one;  ///< each change of the first of these, alone
  std::size_t least = 0;              ///< bytes of the smallest combination
  int tried = 0;
};

/// `config` as parsed. Error(configuration) where its own layout is refused on these ranks, or nothing fits.
/// `disk_bytes_per_second`: of a node's disk, which may take the optimizer's state; 0: there is none.
Fit fit_memory(const Config& config, const Hardware& hardware, const SearchSettings& settings, double limit,
               double disk_bytes_per_second = 0);

/// As text: the file, the cheapest combination with what each change of it saves and costs, the next ones, and the
/// options that set it.
std::string describe_fit(const Fit& fit);

}  // namespace megatron
