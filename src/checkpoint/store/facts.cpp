#include <set>

#include "checkpoint/store/checkpoint.h"

namespace megatron {

namespace {

using nlohmann::json;

std::string shown(const std::string& key, const json* value) {
  return value == nullptr ? kAbsentFact : fact_text(key, *value);
}

const json* member(const json& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

void compare(const json& saved, const json& current, const std::string& prefix,
             std::vector<FactDifference>& differences) {
  std::set<std::string> keys;
  for (const auto& item : saved.items()) keys.insert(item.key());
  for (const auto& item : current.items()) keys.insert(item.key());
  for (const std::string& key : keys) {
    const json *before = member(saved, key), *now = member(current, key);
    if (before != nullptr && now != nullptr) {
      if (*before == *now) continue;
      if (before->is_object() && now->is_object()) {
        compare(*before, *now, prefix + key + ".", differences);
        continue;
      }
    }
    differences.push_back({prefix + key, shown(key, before), shown(key, now)});
  }
}

}  // namespace

std::string fact_text(const std::string& key, const json& value) {
  if (key.ends_with("hash") && value.is_number_integer()) return fmt::format("{:016x}", value.get<std::uint64_t>());
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<FactDifference> compare_facts(const json& saved, const json& current) {
  internal_check(saved.is_object() && current.is_object(), "facts are JSON objects");
  std::vector<FactDifference> differences;
  compare(saved, current, "", differences);
  return differences;
}

void read_state(const CheckpointReader& checkpoint, const std::function<void(const json& extra)>& read) {
  std::string damage;
  try {
    return read(checkpoint.state().extra);
  } catch (const json::exception& error) {
    damage = error.what();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::checkpoint) throw;
    damage = error.what();
  }
  fail(ErrorKind::checkpoint, "{}: its training state is damaged: {}; resume from an older checkpoint",
       checkpoint.path(), damage);
}

std::string list_of(const std::vector<FactDifference>& differences) {
  std::string list;
  for (const FactDifference& difference : differences) {
    list += fmt::format("\n  {}: {} in the checkpoint, {} in this run", difference.key, difference.saved,
                        difference.current);
  }
  return list;
}

void require_same_facts(const json& saved, const json& current, const std::string& path, const std::string& chosen_by) {
  const std::string list = list_of(compare_facts(saved, current));
  verify(list.empty(), ErrorKind::checkpoint,
         "checkpoint {} is of another model; use the input file it was trained with, or another {}:{}", path, chosen_by,
         list);
}

}  // namespace megatron
