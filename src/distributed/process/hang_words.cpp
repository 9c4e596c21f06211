#include "distributed/process/hang_words.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace megatron {

namespace {

constexpr const char* kPrefix = ".hang_";
constexpr const char* kNames[] = {"none", "waits", "works"};

}  // namespace

HangWords::HangWords(std::string folder, std::string job, std::string host)
    : folder_(std::move(folder)), job_(std::move(job)), host_(std::move(host)) {}

std::string HangWords::file_of(const std::string& host) const {
  return folder_ + "/" + kPrefix + host;
}

bool HangWords::say(Word word) {
  if (folder_.empty()) return false;
  const std::string file = file_of(host_), next = file + ".tmp";
  std::ofstream(next) << job_ << ' ' << kNames[static_cast<int>(word)] << ' ' << ++said_ << "\n";
  return std::rename(next.c_str(), file.c_str()) == 0;
}

void HangWords::fall_silent() {
  if (said_ > 0 && !folder_.empty()) std::remove(file_of(host_).c_str());
}

void HangWords::move_to(std::string folder) {
  fall_silent();
  folder_ = std::move(folder);
}

HangWords::Word HangWords::heard_from(const std::string& host) {
  std::string job, word;
  std::int64_t number = 0;
  if (folder_.empty() || !(std::ifstream(file_of(host)) >> job >> word >> number) || job != job_) return Word::none;
  if (word != kNames[static_cast<int>(Word::works)]) return Word::waits;
  const auto [before, first] = last_heard_.try_emplace(host, number);
  const bool again = !first && before->second != number;
  before->second = number;
  return again ? Word::works : Word::waits;
}

void HangWords::clear(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code unused;
    if (at->path().filename().string().starts_with(kPrefix)) std::filesystem::remove(at->path(), unused);
  }
}

}  // namespace megatron
