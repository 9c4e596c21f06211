// The subjects of the table of the parity test: each is a list of its own, so that a lever's rows stand together.
#pragma once

#include "parity/rows.h"

namespace megatron::test {

inline std::vector<std::string> with(std::vector<std::string> settings, const std::vector<std::string>& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

inline const std::vector<std::string> kTwoChunks = {"parallel.schedule=interleaved", "parallel.virtual_stages=2"};

std::vector<Row> layouts();
std::vector<Row> sequence_parallel();
std::vector<Row> schedules();
std::vector<Row> zero_bubble();
std::vector<Row> gradient_sums();
std::vector<Row> distributed();
std::vector<Row> recomputation();
std::vector<Row> precision();

std::vector<Row> rules();
std::vector<Row> batches();
std::vector<Row> sequences();
std::vector<Row> documents();
std::vector<Row> losses();

std::vector<Row> variants();

}  // namespace megatron::test
