// Tiny runs with one error planted into them, which a check of collectives or of records must find.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parity/shared_options.h"
#include "support/planted_defects.h"
#include "support/planted_stages.h"
#include "training/step/replica.h"

namespace megatron::test {

/// A rank's objects in a run, for errors of the code that calls them.
struct Rank {
  const ProcessGrid& grid;
  Replica& replica;
  Backend& backend;
};

/// A line of the sources, without its number, which every change moves.
struct SourceLine {
  std::string file, function;  ///< as the check names them
  std::string text;            ///< a part of the line
};

/// An error and what the check says of it. What is not set is right.
struct Planted {
  std::string name;
  int tensor = 1, data = 1, pipeline = 1;
  std::vector<std::string> how = {};
  std::vector<std::string> found = {};  ///< parts of the message
  SourceLine line = {};                 ///< that it names
  CommunicationDefect communication = {};
  std::function<void(Parameter& parameter)> record = {};   ///< for each parameter, on every rank
  std::function<void(DefectiveOps& ops)> operations = {};  ///< the last rank's
  std::function<void(std::vector<double>& counts, int rank)> counts = {};
  std::function<void(const Rank& rank)> after_backward = {};
  AroundPass pass = {};          ///< every pass through a stage
  bool over_data_ranks = false;  ///< layers take the data ranks for tensor ranks, of which there are as many
};

/// Requires that two steps and an evaluation of this run fail as `found` says.
void require_found(const Planted& planted);
/// The same, and that they pass without the error.
void check_found(const Planted& planted);

/// Sums of this type in the groups of this name are left out.
CommunicationDefect without_sums(const std::string& group, DType type = DType::f32);
/// Sums of f32 have a factor.
CommunicationDefect scaled_sums(const std::string& group, float factor);

// Errors of code and of records.
void sum_again(const Rank& rank);
void is_replica(Parameter& parameter);                    ///< norms alone
void is_partial(Parameter& parameter);                    ///< norms alone
void count_alone(std::vector<double>& counts, int rank);  ///< targets of a rank
void without_waiting(Context& context, const std::function<void(Context&)>& play);

inline const std::vector<std::string> kSharded = {"optimizer.share=state"};

}  // namespace megatron::test
