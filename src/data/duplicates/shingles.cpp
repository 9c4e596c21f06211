#include "data/duplicates/shingles.h"

#include <xxhash.h>

#include <algorithm>

#include "base/core/error.h"

namespace megatron {

namespace {

constexpr Shingles kWords{ShingleUnit::words, 5, TextForm::words};
constexpr Shingles kCharacters{ShingleUnit::characters, 24, TextForm::words};
constexpr ShingleKind kKinds[] = {
    {"words", kWords, kWords, 128, 0.7, 0.7},
    {"characters", kCharacters, kCharacters, 128, 0.7, 0.7},
    {"megatron",
     {ShingleUnit::bytes, 5, TextForm::as_is},
     {ShingleUnit::characters, 5, TextForm::as_is},
     100,
     0.8,
     0.7},
};

}  // namespace

std::span<const ShingleKind> shingle_kinds() {
  return kKinds;
}

const ShingleKind& shingle_kind(std::string_view name) {
  std::string known;
  for (const ShingleKind& kind : kKinds) {
    if (kind.name == name) return kind;
    known += std::string(known.empty() ? "" : ", ") + kind.name;
  }
  fail(ErrorKind::configuration, "no shingles are called \"{}\"; there are: {}", name, known);
}

void ShingleMaker::find_starts(std::string_view text) {
  starts_.clear();
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool begins = shingles_.unit == ShingleUnit::words ? at == 0 || text[at - 1] == ' '
                                                             : (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    if (begins) starts_.push_back(at);
  }
  starts_.push_back(text.size() + (shingles_.unit == ShingleUnit::words ? 1 : 0));
}

const std::vector<std::uint64_t>& ShingleMaker::hashes(std::string_view text) {
  hashes_.clear();
  text = text_in_form(text, shingles_.form, buffer_);
  if (text.empty()) return hashes_;
  const auto size = static_cast<std::size_t>(shingles_.size);
  if (shingles_.unit == ShingleUnit::bytes) {
    const std::size_t count = text.size() > size ? text.size() - size + 1 : 1, bytes = std::min(size, text.size());
    for (std::size_t i = 0; i < count; ++i) hashes_.push_back(XXH3_64bits(text.data() + i, bytes));
    return hashes_;
  }
  find_starts(text);
  const std::size_t units = starts_.size() - 1, space = shingles_.unit == ShingleUnit::words ? 1 : 0;
  if (units <= size) {
    hashes_.push_back(XXH3_64bits(text.data(), text.size()));
    return hashes_;
  }
  for (std::size_t i = 0; i + size <= units; ++i) {
    hashes_.push_back(XXH3_64bits(text.data() + starts_[i], starts_[i + size] - space - starts_[i]));
  }
  return hashes_;
}

std::vector<std::uint64_t> ShingleMaker::set(std::string_view text) {
  std::vector<std::uint64_t> all = hashes(text);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

double similarity(std::span<const std::uint64_t> first, std::span<const std::uint64_t> second, Overlap overlap) {
  if (first.empty() || second.empty()) return 0;
  std::size_t common = 0;
  for (auto a = first.begin(), b = second.begin(); a != first.end() && b != second.end();) {
    common += *a == *b;
    const bool next_a = *a <= *b, next_b = *b <= *a;
    a += next_a;
    b += next_b;
  }
  std::size_t whole = first.size() + second.size() - common;
  if (overlap == Overlap::fewer) whole = std::min(first.size(), second.size());
  if (overlap == Overlap::more) whole = std::max(first.size(), second.size());
  return static_cast<double>(common) / static_cast<double>(whole);
}

}  // namespace megatron
