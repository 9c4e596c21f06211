#include "checkpoint/store/difference.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "checkpoint/store/slice_stream.h"

namespace megatron {

namespace {

/// The tensors that both have in the same shape, with the states that both have of them.
std::vector<TensorSlice> common_tensors(const CheckpointReader& a, const CheckpointReader& b) {
  std::vector<TensorSlice> common;
  for (TensorSlice& slice : whole_tensors(a)) {
    const auto other = b.tensors().find(slice.name);
    if (other == b.tensors().end() || !(other->second.shape == slice.global_shape)) continue;
    const std::vector<std::string>& theirs = other->second.states;
    std::erase_if(slice.states, [&](const NamedState& state) {
      return std::find(theirs.begin(), theirs.end(), state.name) == theirs.end();
    });
    common.push_back(std::move(slice));
  }
  return common;
}

/// The part of an object that has these keys, as far as they are there.
nlohmann::json keys_of(const nlohmann::json& object, const std::vector<std::string>& keys) {
  nlohmann::json some = nlohmann::json::object();
  for (const std::string& key : keys) {
    if (object.contains(key)) some[key] = object.at(key);
  }
  return some;
}

std::string text_of(const std::vector<std::string>& states) {
  return states.empty() ? "none" : fmt::format("{}", fmt::join(states, ", "));
}

/// A line for the optimizer's states of all tensors, or one for each tensor whose states alone differ.
void add_other_states(const CheckpointReader& a, const CheckpointReader& b, std::vector<std::string>& lines) {
  if (a.states() != b.states()) {
    lines.push_back(fmt::format("optimizer states: {} and {}", text_of(a.states()), text_of(b.states())));
    return;
  }
  for (const auto& [name, tensor] : a.tensors()) {
    const auto other = b.tensors().find(name);
    if (other == b.tensors().end() || other->second.states == tensor.states) continue;
    lines.push_back(fmt::format("optimizer states of tensor {}: {} and {}", name, text_of(tensor.states),
                                text_of(other->second.states)));
  }
}

/// Adds what two equally long parts of a tensor differ in.
void compare(std::span<const float> a, std::span<const float> b, NumberDifference& difference) {
  if (std::equal(a.begin(), a.end(), b.begin(),
                 [](float x, float y) { return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y); }))
    return;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])) continue;
    ++difference.differing;
    const double distance = std::abs(double{a[i]} - double{b[i]});
    if (std::isnan(distance) || distance > difference.largest) difference.largest = distance;  // NaN stays
  }
}

}  // namespace

std::vector<std::string> other_differences(const CheckpointReader& a, const CheckpointReader& b, bool state,
                                           const std::vector<std::string>& extra) {
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : a.tensors()) {
    const auto other = b.tensors().find(name);
    if (other == b.tensors().end()) {
      lines.push_back(fmt::format("tensor {} {}: only in {}", name, tensor.shape.to_string(), a.path()));
    } else if (!(other->second.shape == tensor.shape)) {
      lines.push_back(fmt::format("tensor {}: {} in {}, {} in {}", name, tensor.shape.to_string(), a.path(),
                                  other->second.shape.to_string(), b.path()));
    }
  }
  for (const auto& [name, tensor] : b.tensors()) {
    if (a.tensors().contains(name)) continue;
    lines.push_back(fmt::format("tensor {} {}: only in {}", name, tensor.shape.to_string(), b.path()));
  }
  if (!state) return lines;
  const auto differ = [&](const char* what, std::int64_t here, std::int64_t there) {
    if (here != there) lines.push_back(fmt::format("{}: {} and {}", what, here, there));
  };
  add_other_states(a, b, lines);
  differ("step", a.state().step, b.state().step);
  differ("samples", a.state().samples, b.state().samples);
  differ("tokens", a.state().tokens, b.state().tokens);
  for (const FactDifference& fact : compare_facts(a.state().facts, b.state().facts)) {
    lines.push_back(fmt::format("{}: {} and {}", fact.key, fact.saved, fact.current));
  }
  const nlohmann::json ours = keys_of(a.state().extra, extra), theirs = keys_of(b.state().extra, extra);
  for (const FactDifference& fact : compare_facts(ours, theirs)) {
    lines.push_back(fmt::format("{}: {} and {}", fact.key, fact.saved, fact.current));
  }
  return lines;
}

std::vector<TensorDifference> compare_tensors(const CheckpointReader& a, const CheckpointReader& b, bool states,
                                              const std::map<std::string, std::int64_t>& rows) {
  std::vector<TensorSlice> common = common_tensors(a, b);
  std::vector<TensorDifference> differences;
  std::map<std::string, std::size_t> places;
  for (TensorSlice& slice : common) {
    const auto limit = rows.find(slice.name);
    if (limit != rows.end() && limit->second < slice.global_shape[0]) {
      slice.count = slice.count / slice.global_shape[0] * limit->second;
    }
    places[slice.name] = differences.size();
    differences.push_back({slice.name, slice.global_shape, slice.count, {}});
  }
  for (const std::string& dataset : datasets_with(states ? state_names(common) : std::vector<std::string>())) {
    SliceStream here(a, common, dataset), there(b, common, dataset);
    for (const TensorSlice& slice : here.slices()) differences[places.at(slice.name)].numbers.push_back({dataset});
    for (std::int64_t position = 0; position < here.elements();) {
      const std::span<const float> ours = here.read(position), theirs = there.read(position);
      const auto count = static_cast<std::int64_t>(std::min(ours.size(), theirs.size()));
      for (std::int64_t done = 0; done < count;) {
        const std::size_t slice = here.slice_at(position + done);
        const std::int64_t part = std::min(count - done, here.begin_of(slice + 1) - position - done);
        const auto first = static_cast<std::size_t>(done), size = static_cast<std::size_t>(part);
        compare(ours.subspan(first, size), theirs.subspan(first, size),
                differences[places.at(here.slices()[slice].name)].numbers.back());
        done += part;
      }
      position += count;
    }
  }
  return differences;
}

}  // namespace megatron
