// Data that pictures of a run show, in bounded memory however long the run was: decimated curves out of metrics.jsonl.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "monitoring/plots/curve.h"

namespace megatron {

struct PlotData {
  /// A line of metrics.jsonl; lines of other kinds are passed over.
  void add(const nlohmann::json& line);

  DecimatedCurve train_loss;                 // at the middle of the steps that each line is the mean of
  DecimatedCurve learning_rate;              // over steps
  std::string loss_name = "language_model";  // the training loss'; evaluations are always this
  using Curves = std::vector<std::pair<std::string, DecimatedCurve>>;
  Curves evaluations;  // (split, or task without an accuracy; loss over steps) as first met
  Curves accuracies;   // (split or task, percent over steps); one by bytes has " by byte" after its name
  Curves terms;        // the training loss', where it has several
  DecimatedCurve gradient_norm, throughput, loss_scale;  // over steps; tokens per second of the whole job
  DecimatedCurve skipped_steps;                          // lines that had some, and how many
  double skipped = 0;                                    // in all
  double first_step = 0, last_step = 0;                  // the training lines'
  std::int64_t train_lines = 0;

  /// Steps that a training line is the mean of, as most are; 1 if there are fewer than two lines.
  std::int64_t steps_per_line() const;

  /// The curve of this name, new if there is none; null when there are eight others already.
  static DecimatedCurve* curve(Curves& curves, const std::string& name);

 private:
  void add_train_line(const nlohmann::json& line, double step);
};

}  // namespace megatron
