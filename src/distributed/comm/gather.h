// gather and broadcast: values of any kind, for what ranks tell each other where it is not the hot path. T needs
// nlohmann's to_json and from_json, as NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE writes them. Values travel as CBOR: integers
// and floats (NaN and infinities too) arrive exactly, and texts need not be UTF-8.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "distributed/comm/communicator.h"

namespace megatron {

/// The value as bytes, and the reverse.
template <class T>
std::string packed(const T& value) {
  std::string bytes;
  nlohmann::json::to_cbor(value, bytes);
  return bytes;
}
template <class T>
T unpacked(const std::string& bytes) {
  return nlohmann::json::from_cbor(bytes).get<T>();
}

/// Root's value on every rank. Collective, with the messages of Communicator::broadcast_text().
template <class T>
T broadcast(Communicator& world, const T& value, int root = 0) {
  return unpacked<T>(world.broadcast_text(packed(value), root));
}

/// The ranks' values, by rank; empty except at root. Collective, with the messages of Communicator::gather_texts().
template <class T>
std::vector<T> gather(Communicator& world, const T& value, int root = 0) {
  std::vector<T> values;
  for (const std::string& bytes : world.gather_texts(packed(value), root)) values.push_back(unpacked<T>(bytes));
  return values;
}

/// The same on every rank: gathered at rank 0, which tells all.
template <class T>
std::vector<T> gather_on_all(Communicator& world, const T& value) {
  return broadcast(world, gather(world, value));
}

}  // namespace megatron
